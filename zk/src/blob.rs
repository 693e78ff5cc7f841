//! Data that is stored in a znode if it is small, and otherwise in chunks elsewhere.
//!
//! The first byte of the znode's content specifies whether the data or the location of its chunks follows. So a
//! transaction that writes large data stays small: the chunks are written first, and mean nothing until the
//! transaction that names them is committed.

use serde::{Deserialize, Serialize};

use crate::{
    chunks,
    error::{Error, Result},
    job::remove,
    record,
    store::{Op, Store},
};

/// The most data kept in the znode itself, in bytes, if no other data competes for the request's size.
pub(crate) const INLINE_BYTES_MAX: usize = 256 << 10;

/// The longest content that names chunks, in bytes: the path of a folder, and the fields of a [`Pointer`].
const POINTER_BYTES_MAX: usize = 1024;

const INLINE: u8 = 0;
const CHUNKED: u8 = 1;

/// The location of the chunks.
#[derive(Debug, Serialize, Deserialize)]
struct Pointer {
    folder: String,
    chunks: usize,
}

fn chunk_of(folder: &str, k: usize) -> String {
    format!("{folder}/{k:06}")
}

/// Returns the content for a znode. Data of more than `inline_max` bytes is first written below `folder`,
/// replacing chunks of an earlier try; each write carries the check.
pub(crate) async fn put(
    store: &dyn Store,
    folder: String,
    data: &[u8],
    inline_max: usize,
    check: Option<Op>,
) -> Result<Vec<u8>> {
    if data.len() <= inline_max {
        return Ok(inline(data));
    }
    let chunks = chunks::write(store, &folder, |k| chunk_of(&folder, k), data, check).await?;
    Ok(pointer(folder, chunks))
}

/// Returns the maximum size of the content of a znode whose data is in chunks below `folder`, in bytes.
pub(crate) fn pointer_bytes(folder: &str) -> usize {
    pointer(folder.to_owned(), usize::MAX).len()
}

fn pointer(folder: String, chunks: usize) -> Vec<u8> {
    let mut content = vec![CHUNKED];
    content.extend(record::write(&Pointer { folder, chunks }));
    debug_assert!(content.len() <= POINTER_BYTES_MAX, "{} bytes", content.len());
    content
}

/// Returns the content of a znode that holds the data itself.
pub(crate) fn inline(data: &[u8]) -> Vec<u8> {
    [&[INLINE], data].concat()
}

/// Returns the size of the content of a znode that holds the data itself, in bytes.
pub(crate) fn inline_bytes(data: &[u8]) -> usize {
    1 + data.len()
}

/// Reads the data of a znode from its content.
pub(crate) async fn get(store: &dyn Store, path: &str, content: &[u8]) -> Result<Vec<u8>> {
    match content.split_first() {
        None => Ok(Vec::new()),
        Some((&INLINE, data)) => Ok(data.to_vec()),
        Some((&CHUNKED, pointer)) => {
            let Pointer { folder, chunks } = record::read(path, pointer)?;
            chunks::read(store, |k| chunk_of(&folder, k), chunks).await
        }
        Some((kind, _)) => Err(Error::Garbled {
            path: path.to_owned(),
            reason: format!("it starts with {kind}, not 0 or 1"),
        }),
    }
}

/// The number of times that a znode may be overwritten while its data is read.
const READS_MAX: usize = 64;

/// Returns the content of a znode and its data, or `None` if the znode does not exist. If the chunks are
/// missing because the znode was overwritten or deleted, it is read again.
///
/// # Errors
/// [`Error::NoNode`] for a chunk that is missing although the znode names it.
pub(crate) async fn read(store: &dyn Store, path: &str) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let mut before = None;
    for _ in 0..READS_MAX {
        let content = match store.get(path).await {
            Err(Error::NoNode { .. }) => return Ok(None),
            other => other?.0,
        };
        match get(store, path, &content).await {
            Err(Error::NoNode { .. }) if before.as_ref() != Some(&content) => before = Some(content),
            data => return Ok(Some((content, data?))),
        }
    }
    Err(Error::Contended { path: path.to_owned(), tries: READS_MAX })
}

/// The maximum number of concurrent requests.
const REQUESTS_MAX: usize = 256;

/// The contents of znodes that name chunks.
pub(crate) struct Pointers {
    /// Each with the path of its znode.
    pub(crate) contents: Vec<(String, Vec<u8>)>,
    /// Whether some znodes were not there.
    pub(crate) misses: bool,
}

/// Returns the contents of those znodes that name chunks. The other contents, which may be large, are not
/// read.
pub(crate) async fn pointers(store: &dyn Store, paths: &[String]) -> Result<Pointers> {
    let (mut contents, mut misses) = (Vec::new(), false);
    for paths in paths.chunks(REQUESTS_MAX) {
        // All are requested before the first answer is awaited.
        let asked: Vec<_> = paths.iter().map(|path| store.exists(path)).collect();
        let mut short = Vec::new();
        for (path, answer) in paths.iter().zip(asked) {
            match answer.await? {
                Some(stat) if (1..=POINTER_BYTES_MAX).contains(&stat.bytes) => short.push(path),
                Some(_) => {}
                None => misses = true,
            }
        }
        let asked: Vec<_> = short.iter().map(|path| store.get(path)).collect();
        for (path, answer) in short.into_iter().zip(asked) {
            match answer.await {
                Ok((content, _)) if content.first() == Some(&CHUNKED) => {
                    contents.push((path.clone(), content));
                }
                Ok(_) => {}
                Err(Error::NoNode { .. }) => misses = true,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(Pointers { contents, misses })
}

/// Returns the folder of the chunks that a content names, if it names any.
pub(crate) fn folder(path: &str, content: &[u8]) -> Result<Option<String>> {
    match content.split_first() {
        Some((&CHUNKED, pointer)) => Ok(Some(record::read::<Pointer>(path, pointer)?.folder)),
        _ => Ok(None),
    }
}

/// Removes the chunks that a content names, if it names any.
pub(crate) async fn discard(store: &dyn Store, path: &str, content: &[u8]) -> Result<()> {
    match folder(path, content)? {
        Some(folder) => remove(store, folder).await,
        None => Ok(()),
    }
}
