package main

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// createFile makes a file with all of its content or not at all. An existing
// file stays as it is, and the error says fs.ErrExist. Without an error the file
// outlives a power loss, here as in replaceFile.
func createFile(path string, mode fs.FileMode, content []byte) error {
	name, err := writeBeside(path, mode, content)
	if err != nil {
		return err
	}
	// A link fails where the path exists, unlike a rename.
	if err := errors.Join(os.Link(name, path), os.Remove(name)); err != nil {
		return err
	}
	return syncFolder(path)
}

// replaceFile makes a file or replaces it; a reader sees the old content or the
// new one, never a part.
func replaceFile(path string, mode fs.FileMode, content []byte) error {
	name, err := writeBeside(path, mode, content)
	if err != nil {
		return err
	}
	if err := os.Rename(name, path); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return syncFolder(path)
}

// syncFolder makes the name of a file durable.
func syncFolder(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// writeBeside writes a file of a new name into the folder of path, so that it
// can be moved there, and syncs it: a name must not appear before its content.
func writeBeside(path string, mode fs.FileMode, content []byte) (string, error) {
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+rand.Text())
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	var at *fs.PathError
	if errors.As(err, &at) {
		at.Path = filepath.Dir(path) // it is the folder that is not there, or not to be written in
	}
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(name))
	}
	return name, nil
}
