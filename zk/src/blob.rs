//! Data that stands in a znode if it is small, and beside it in chunks if it is not.
//!
//! The content of the znode begins with a byte that says which: what follows is the data, or where the chunks
//! are. So a transaction that has to write large data stays small: the chunks are written first, and count
//! for nothing until the transaction that names them is done.

use serde::{Deserialize, Serialize};

use crate::{
    chunks,
    error::{Error, Result},
    job::remove,
    record,
    store::{Op, Store},
};

/// What is kept in the znode itself, in bytes, when nothing else is large.
pub(crate) const INLINE_BYTES_MAX: usize = 256 << 10;

const INLINE: u8 = 0;
const CHUNKED: u8 = 1;

/// Where the chunks are.
#[derive(Debug, Serialize, Deserialize)]
struct Pointer {
    folder: String,
    chunks: usize,
}

fn chunk_of(folder: &str, k: usize) -> String {
    format!("{folder}/{k:06}")
}

/// Gives the content for a znode. Data of more than `inline_max` bytes is written below `folder` first, in
/// place of what an earlier try may have left there; each write carries the check.
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
    let mut content = vec![CHUNKED];
    content.extend(record::write(&Pointer { folder, chunks }));
    Ok(content)
}

/// The content of a znode with the data in it.
pub(crate) fn inline(data: &[u8]) -> Vec<u8> {
    [&[INLINE], data].concat()
}

/// Reads the data of a znode with this content.
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
            reason: format!("it begins with {kind}, not 0 or 1"),
        }),
    }
}

/// The folder of the chunks that a content names, if it names any.
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
