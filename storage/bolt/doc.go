// Package bolt is the embedded backend: one bbolt file, one process.
//
// # Files
//
// A store is a folder with two files. onced.db holds the data. STORE, the
// marker, is a few lines of text with the store's generation and the number of
// the newest commit that it is known to have made; it is written at every start,
// at a clean stop, and once a minute while there are commits. With the marker a
// lost file is told from a store that was never made, and an older copy of the
// file from the newest one; after a kill, a copy that is older than the last
// minute of commits. Nothing here repairs: what does not look right is refused in
// words and left as it is, only Init makes a store, and only Compact puts another
// file in the place of a data file, which it has found sound.
//
// Package codec turns what is stored into bytes and back, and package pages looks
// for damage in the file before bbolt maps it. Each value is sealed with a checksum
// over its key and itself. A seal that is broken is damage of the file, which is then
// refused at its opening, unless it is too large to be read as a whole; a content
// that is sealed and not understood is another build's, and its operation alone is
// refused as unreadable. Both meta pages of the file must be intact: the one that is
// left may be from before the last commit that was answered.
//
// # Commits
//
// One goroutine, the committer, owns the write transaction. It takes what queued
// while the last commit was being synced, of each class a part where there is more
// than fits a batch, runs the update functions in order, each seeing what those
// before it changed, and commits them as one transaction; no answer of the batch
// leaves before that has been synced. A lone update waits for nobody. A batch that
// changes nothing commits nothing and costs no sync.
//
// # Reads
//
// bbolt shows a commit to readers before its sync has ended. So each commit
// publishes its transaction's number after the sync, and a read that has met a
// newer one waits until that is published. A read copies what it needs out of
// the mapped file, ends its transaction, and only then waits.
//
// # Faults
//
// A disk that is full before the commit's meta page was written leaves the store as
// it was: [storage.ErrFull]. Room for settlements and sweeps is kept in the file.
// After any other failed write or sync it cannot be known what a restart will find,
// so the store stops: [storage.ErrFailed].
package bolt
