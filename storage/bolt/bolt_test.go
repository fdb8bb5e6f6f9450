package bolt

import (
	"testing"

	"github.com/onced/onced/storage/storagetest"
)

func TestConformance(t *testing.T) {
	t.Run("bolt", func(t *testing.T) {
		storagetest.Run(t, func(t *testing.T) storagetest.Harness { return newHarness(t) })
	})
}
