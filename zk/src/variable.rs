//! variable
use crate::{
    error::{Error, Result},
    store::{CreateMode, OneShot, Store, WatchEvent},
};
use std::sync::Arc;
/// p
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Published {
    Written,
    Beaten(Vec<u8>),
}
/// p
pub async fn publish(
    s: &dyn Store,
    path: &str,
    value: &[u8],
    improves: &(dyn Fn(&[u8], &[u8]) -> bool + Sync),
) -> Result<Published> {
    loop {
        match s.get(path).await {
            Ok((old, stat)) => {
                if old == value {
                    return Ok(Published::Written);
                }
                if !improves(value, &old) {
                    return Ok(Published::Beaten(old));
                }
                match s.set(path, value, Some(stat.version)).await {
                    Ok(_) => return Ok(Published::Written),
                    Err(Error::BadVersion { .. }) => {}
                    Err(e) => return Err(e),
                }
            }
            Err(Error::NoNode { .. }) => match s.create(path, value, CreateMode::Persistent).await {
                Ok(_) => return Ok(Published::Written),
                Err(Error::NodeExists { .. }) => {}
                Err(e) => return Err(e),
            },
            Err(e) => return Err(e),
        }
    }
}
/// w
pub struct VariableWatch {
    store: Arc<dyn Store>,
    path: String,
    armed: Option<OneShot>,
}
impl VariableWatch {
    /// o
    pub async fn open(store: Arc<dyn Store>, path: &str) -> Result<Self> {
        Ok(Self { store, path: path.into(), armed: None })
    }
    /// n
    pub async fn next(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(w) = &mut self.armed {
                if w.await == WatchEvent::Ended {
                    return Err(Error::SessionExpired);
                }
                self.armed = None;
            }
            let (stat, w) = self.store.exists_and_watch(&self.path).await?;
            self.armed = Some(w);
            if stat.is_some() {
                if let Ok((d, _)) = self.store.get(&self.path).await {
                    return Ok(d);
                }
            }
        }
    }
}
