//! A relay of datagrams for tests: a slow connection between two nodes, or one that drops some datagrams.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{net::UdpSocket, task::JoinSet, time};

/// A relay to one node. It stops when it is dropped.
pub(super) struct Relay {
    pub(super) address: SocketAddr,
    _carrying: JoinSet<()>,
}

/// The maximum size of a datagram, in bytes.
const DATAGRAM_BYTES_MAX: usize = 2048;

impl Relay {
    /// Creates a relay with a limited rate in bytes per millisecond in each direction. Excess data waits in the
    /// socket and is lost when that is full.
    pub(super) async fn of_bytes_per_ms(to: SocketAddr, bytes_per_ms: usize) -> Self {
        Self::open(to, bytes_per_ms, |_| true, |_| true).await
    }

    /// Creates a relay with filters for the datagrams to and from the node.
    pub(super) async fn that_lets_through(
        to: SocketAddr,
        there: impl Fn(&[u8]) -> bool + Send + 'static,
        back: impl Fn(&[u8]) -> bool + Send + 'static,
    ) -> Self {
        Self::open(to, usize::MAX, there, back).await
    }

    async fn open(
        to: SocketAddr,
        bytes_per_ms: usize,
        there: impl Fn(&[u8]) -> bool + Send + 'static,
        back: impl Fn(&[u8]) -> bool + Send + 'static,
    ) -> Self {
        let bind = async || Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
        let (front, rear) = (bind().await, bind().await);
        let address = front.local_addr().unwrap();
        rear.connect(to).await.unwrap();
        let client = Arc::new(tokio::sync::Mutex::new(None));
        let mut carrying = JoinSet::new();
        let (its_front, its_rear, its_client) = (Arc::clone(&front), Arc::clone(&rear), Arc::clone(&client));
        carrying.spawn(async move {
            let (mut datagram, mut carried) = ([0; DATAGRAM_BYTES_MAX], 0);
            loop {
                let Ok((bytes, from)) = its_front.recv_from(&mut datagram).await else { continue };
                *its_client.lock().await = Some(from);
                if there(&datagram[..bytes]) {
                    let _ = its_rear.send(&datagram[..bytes]).await;
                }
                pace(&mut carried, bytes, bytes_per_ms).await;
            }
        });
        carrying.spawn(async move {
            let (mut datagram, mut carried) = ([0; DATAGRAM_BYTES_MAX], 0);
            loop {
                let Ok(bytes) = rear.recv(&mut datagram).await else { continue };
                let to = *client.lock().await;
                if let Some(to) = to.filter(|_| back(&datagram[..bytes])) {
                    let _ = front.send_to(&datagram[..bytes], to).await;
                }
                pace(&mut carried, bytes, bytes_per_ms).await;
            }
        });
        Self { address, _carrying: carrying }
    }
}

async fn pace(carried: &mut usize, bytes: usize, bytes_per_ms: usize) {
    *carried += bytes;
    if *carried > bytes_per_ms {
        *carried = 0;
        time::sleep(Duration::from_millis(1)).await;
    }
}
