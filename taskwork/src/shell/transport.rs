//! stub
use crate::id::NodeId;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use tokio::sync::mpsc;
#[derive(Debug, thiserror::Error)]
#[error("t")]
pub(crate) struct TransportError;
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fingerprint(String);
impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::str::FromStr for Fingerprint {
    type Err = TransportError;
    fn from_str(s: &str) -> Result<Self, TransportError> {
        Ok(Self(s.into()))
    }
}
pub(crate) struct Identity(Fingerprint);
impl Identity {
    pub(crate) fn generate(_: NodeId) -> Result<Self, TransportError> {
        Ok(Self(Fingerprint("x".into())))
    }
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.0.clone()
    }
}
#[derive(Debug)]
#[allow(dead_code)]
pub(crate) struct PeerAddress {
    pub(crate) address: SocketAddr,
    pub(crate) fingerprint: Fingerprint,
}
#[derive(Debug, Default)]
pub(crate) struct Peers;
impl Peers {
    pub(crate) fn set(&self, _: NodeId, _: PeerAddress) {}
    pub(crate) fn remove(&self, _: NodeId) {}
}
#[derive(Debug, Default)]
pub(crate) struct TransportLimits;
pub(crate) enum Arrival {
    Message { from: NodeId, payload: Vec<u8> },
    Unreachable { to: NodeId },
}
static REG: Mutex<BTreeMap<NodeId, mpsc::Sender<Arrival>>> = Mutex::new(BTreeMap::new());
pub(crate) struct Transport(NodeId, mpsc::Sender<Arrival>);
impl Transport {
    pub(crate) fn bind(
        me: NodeId,
        _: Identity,
        _: SocketAddr,
        _: Arc<Peers>,
        s: mpsc::Sender<Arrival>,
        _: TransportLimits,
    ) -> Result<Self, TransportError> {
        REG.lock().unwrap().insert(me, s.clone());
        Ok(Self(me, s))
    }
    pub(crate) fn local_address(&self) -> SocketAddr {
        "127.0.0.1:1".parse().unwrap()
    }
    pub(crate) fn send(&self, to: NodeId, payload: Vec<u8>) {
        let t = REG.lock().unwrap().get(&to).cloned();
        match t {
            Some(t) => {
                let _ = t.try_send(Arrival::Message { from: self.0, payload });
            }
            None => {
                let _ = self.1.try_send(Arrival::Unreachable { to });
            }
        }
    }
    pub(crate) async fn close(self) {
        REG.lock().unwrap().remove(&self.0);
    }
}
