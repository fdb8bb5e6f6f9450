# Short names for the commands that CONTRIBUTING.md explains.

.PHONY: build test lint generate check fmt explore

build:
	go build ./...

test:
	go test ./...

lint:
	bash .ci/run setup lint architecture

generate:
	tools/generate

check:
	bash .ci/run

fmt:
	git ls-files -co --exclude-standard '*.go' ':!gen' | xargs go tool -modfile=tools/lint/go.mod gofumpt -w

explore:
	go run ./test/explore -scenario all
