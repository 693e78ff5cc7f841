//! Data that is too large for one znode, in chunks.

use crate::{
    error::{Error, Result},
    store::{CreateMode, Op, Store},
};

/// The maximum size of a chunk, in bytes: far below the limit of a request.
pub const CHUNK_BYTES_MAX: usize = 512 << 10;
/// The maximum size of data in chunks, in bytes.
pub const CHUNKED_BYTES_MAX: usize = 64 << 20;

/// Writes data in chunks below a folder, replacing its previous content. Each write carries the check, if one
/// is given.
pub(crate) async fn write(
    store: &dyn Store,
    folder: &str,
    path: impl Fn(usize) -> String,
    data: &[u8],
    check: Option<Op>,
) -> Result<usize> {
    if data.len() > CHUNKED_BYTES_MAX {
        return Err(Error::TooLarge { path: folder.to_owned(), size: data.len(), limit: CHUNKED_BYTES_MAX });
    }
    put(store, folder.to_owned(), b"", check.as_ref()).await?;
    let mut chunks = 0;
    for chunk in data.chunks(CHUNK_BYTES_MAX) {
        put(store, path(chunks), chunk, check.as_ref()).await?;
        chunks += 1;
    }
    Ok(chunks)
}

/// Creates a znode, or sets it if it exists.
async fn put(store: &dyn Store, path: String, data: &[u8], check: Option<&Op>) -> Result<()> {
    let with_check = |op| check.cloned().into_iter().chain([op]).collect::<Vec<_>>();
    let created = Op::Create { path: path.clone(), data: data.to_vec(), mode: CreateMode::Persistent };
    match store.multi(with_check(created)).await {
        Err(Error::Multi { cause, .. }) if matches!(*cause, Error::NodeExists { .. }) => {
            store.multi(with_check(Op::Set { path, data: data.to_vec(), version: None })).await.map(drop)
        }
        other => other.map(drop),
    }
}

pub(crate) async fn read(
    store: &dyn Store,
    path: impl Fn(usize) -> String,
    chunks: usize,
) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    read_each(store, path, chunks, |chunk| data.extend(chunk)).await?;
    Ok(data)
}

/// Reads chunks in order, and passes each on as soon as it is read.
pub(crate) async fn read_each(
    store: &dyn Store,
    path: impl Fn(usize) -> String,
    chunks: usize,
    mut take: impl FnMut(Vec<u8>),
) -> Result<()> {
    if chunks > CHUNKED_BYTES_MAX.div_ceil(CHUNK_BYTES_MAX) {
        let reason = format!("{chunks} chunks exceed the maximum");
        return Err(Error::Garbled { path: path(0), reason });
    }
    for k in 0..chunks {
        take(store.get(&path(k)).await?.0);
    }
    Ok(())
}
