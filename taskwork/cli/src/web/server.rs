//! A small HTTP server for dashboards and health endpoints. Sizes, times and numbers of connections are bounded.

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    error::Error,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hyper::{
    Request, Response,
    body::{Body, Incoming},
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpSocket},
    sync::{Semaphore, watch},
    time::{self, Instant},
};
use tokio_rustls::TlsAcceptor;

use crate::Failure;

/// The maximum number of connections. A further one replaces that with the oldest request, so that slow clients do not
/// block others. Event streams, calls, uploads and waits lift their deadline and are not replaced: if all connections are
/// of this kind, a further one waits.
const CONNECTIONS_MAX: usize = 256;
/// The maximum number of connections from one address, so that one machine cannot block all others. Connections from
/// this machine are not limited: a proxy serves many clients.
const CONNECTIONS_OF_ADDRESS_MAX: usize = 32;
/// The maximum size of the head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// The maximum number of headers of a request.
const HEADERS_MAX: usize = 64;
/// The maximum time to receive the head of a request, also of the next one on the same connection, and for the TLS
/// handshake before it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after which a connection is closed, unless it is an event stream.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(300);
/// The pause after a failed accept, such as for lack of file descriptors.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);
/// The send buffer for a browser that does not read, in bytes.
const SEND_BUFFER_BYTES: u32 = 128 << 10;
/// The maximum number of connections in the accept queue.
const BACKLOG: u32 = 256;

/// The deadline of a connection. Each request has that of its connection as an extension.
#[derive(Debug, Clone)]
pub struct Deadline(Arc<watch::Sender<Option<Instant>>>);

impl Deadline {
    /// Returns the default deadline, from now.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Some(Instant::now() + CONNECTION_TIMEOUT))))
    }

    async fn passed(&self) {
        let mut changes = self.0.subscribe();
        loop {
            let at = *changes.borrow_and_update();
            let passed = async {
                match at {
                    Some(at) => time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = passed => return,
                // The sender is a field of this value, so it cannot be dropped here.
                _ = changes.changed() => {}
            }
        }
    }
}

impl Default for Deadline {
    fn default() -> Self {
        Self::new()
    }
}

impl Deadline {
    /// Removes the deadline, for an event stream.
    pub fn lift(&self) {
        self.0.send_replace(None);
    }

    /// Restores the default deadline.
    pub fn restore(&self) {
        // A connection that was closed stays closed.
        let set = |at: &mut Option<Instant>| {
            let is_lifted = at.is_none();
            at.get_or_insert_with(|| Instant::now() + CONNECTION_TIMEOUT);
            is_lifted
        };
        self.0.send_if_modified(set);
    }

    /// Closes the connection.
    pub fn end(&self) {
        self.0.send_replace(Some(Instant::now()));
    }

    fn is_lifted(&self) -> bool {
        self.0.borrow().is_none()
    }
}

/// The address of the client. Each request has it as an extension.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

/// Listens on an address that only this machine can reach.
///
/// # Errors
/// If other machines could reach it, or it cannot be listened on.
pub fn listen_here(option: &str, address: SocketAddr) -> Result<TcpListener, Failure> {
    if !address.ip().is_loopback() {
        return Err(Failure::usage(format!(
            "{option} {address} could be reached by other machines, which need neither a password nor TLS to read it. \
             Listen on this machine alone, as in {option} 127.0.0.1:{port}, and let a proxy with TLS and a sign-in, \
             or a tunnel (ssh -L {port}:127.0.0.1:{port}), lead there",
            port = address.port(),
        )));
    }
    listen(option, address)
}

/// Listens on an address.
///
/// # Errors
/// If it cannot be listened on.
pub fn listen(option: &str, address: SocketAddr) -> Result<TcpListener, Failure> {
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        // Connections take it over.
        socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    open().map_err(|error| Failure::failed(format!("{option} {address} cannot be listened on: {error}")))
}

/// Serves requests until the process exits.
pub async fn serve<S, B>(listener: TcpListener, tls: Option<TlsAcceptor>, service: S) -> Infallible
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (peers, connections) = (Peers::default(), Connections::default());
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok((stream, peer)) => (stream, peer.ip()),
            Err(error) => {
                tracing::debug!(%error, "a connection was not accepted");
                time::sleep(REFUSED_PAUSE).await;
                continue;
            }
        };
        let Some(of_peer) = peers.enter(peer) else {
            tracing::debug!(%peer, "a connection was refused: there are too many from its address");
            continue;
        };
        if room.available_permits() == 0 {
            connections.end_oldest();
        }
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { continue };
        // Sends the last part of an answer without waiting for an acknowledgement of the part before.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection waits before it sends little");
        }
        let (tls, service, connection) = (tls.clone(), service.clone(), connections.enter());
        tokio::spawn(async move {
            let (_place, _of_peer) = (place, of_peer);
            let conversing = async {
                let Some(tls) = tls else { return converse(stream, peer, &connection, service).await };
                match time::timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
                    Ok(Ok(stream)) => converse(stream, peer, &connection, service).await,
                    Ok(Err(error)) => tracing::debug!(%error, "a connection did not speak TLS"),
                    Err(_) => tracing::debug!("a TLS handshake timed out"),
                }
            };
            tokio::select! {
                () = conversing => {}
                () = connection.deadline.passed() => tracing::debug!("a connection was ended"),
            }
        });
    }
}

/// The deadlines of the open connections, in the order of their last requests.
#[derive(Debug, Clone, Default)]
struct Connections(Arc<Mutex<VecDeque<Deadline>>>);

/// An open connection, until it is dropped.
#[derive(Debug)]
struct Connection {
    connections: Connections,
    deadline: Deadline,
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, VecDeque<Deadline>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) -> Connection {
        let deadline = Deadline::new();
        self.open().push_back(deadline.clone());
        Connection { connections: self.clone(), deadline }
    }

    /// Removes a connection; false if it was ended.
    fn remove(&self, deadline: &Deadline) -> bool {
        let mut open = self.open();
        let place = open.iter().position(|other| Arc::ptr_eq(&other.0, &deadline.0));
        place.is_some_and(|place| open.remove(place).is_some())
    }

    /// Ends the connection with the oldest request that has a deadline. A connection without a request counts from its
    /// start.
    fn end_oldest(&self) {
        let mut open = self.open();
        let place = open.iter().position(|deadline| !deadline.is_lifted());
        if let Some(deadline) = place.and_then(|place| open.remove(place)) {
            deadline.end();
        }
    }
}

impl Connection {
    /// Notes that the connection has sent a request.
    fn on_request(&self) {
        if self.connections.remove(&self.deadline) {
            self.connections.open().push_back(self.deadline.clone());
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.remove(&self.deadline);
    }
}

/// The numbers of connections from other machines, by address.
#[derive(Debug, Clone, Default)]
struct Peers(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A counted connection, until it is dropped.
#[derive(Debug)]
struct OfPeer {
    peers: Peers,
    address: IpAddr,
}

impl Peers {
    fn numbers(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection; `None` if its address has too many.
    fn enter(&self, address: IpAddr) -> Option<OfPeer> {
        let address = address.to_canonical();
        if !address.is_loopback() {
            let mut numbers = self.numbers();
            let number = numbers.entry(address).or_default();
            if *number >= CONNECTIONS_OF_ADDRESS_MAX {
                return None;
            }
            *number += 1;
        }
        Some(OfPeer { peers: self.clone(), address })
    }
}

impl Drop for OfPeer {
    fn drop(&mut self) {
        let mut numbers = self.peers.numbers();
        if let Some(number) = numbers.get_mut(&self.address) {
            *number -= 1;
            if *number == 0 {
                numbers.remove(&self.address);
            }
        }
    }
}

/// Serves the requests of one connection.
async fn converse<S, B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: IpAddr,
    connection: &Connection,
    service: S,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let service = service_fn(move |mut request: Request<Incoming>| {
        connection.on_request();
        request.extensions_mut().insert(connection.deadline.clone());
        request.extensions_mut().insert(Peer(peer.to_canonical()));
        service.call(request)
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = serving.await {
        tracing::debug!(%error, "a connection has failed");
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    use super::*;

    #[test]
    fn connections_per_address_are_limited() {
        let peers = Peers::default();
        let enter = |address: &str| peers.enter(address.parse().unwrap());
        let mut all: Vec<_> = (0..CONNECTIONS_OF_ADDRESS_MAX).map(|_| enter("192.0.2.1").unwrap()).collect();
        assert!(enter("192.0.2.1").is_none() && enter("::ffff:192.0.2.1").is_none());
        let others = [enter("192.0.2.2"), enter("2001:db8::1")];
        assert!(others.iter().all(Option::is_some));
        all.pop();
        assert!(enter("192.0.2.1").is_some());
        let own: Vec<_> = (0..CONNECTIONS_MAX).map(|_| enter("127.0.0.1")).collect();
        assert!(own.iter().all(Option::is_some));
        drop((all, others, own));
        assert!(peers.numbers().is_empty());
    }

    #[test]
    fn oldest_connection_without_stream_is_replaced() {
        let connections = Connections::default();
        let [stream, active, idle, newest] = std::array::from_fn(|_| connections.enter());
        let is_ended = |connection: &Connection| {
            connection.deadline.0.borrow().is_some_and(|deadline| deadline <= Instant::now())
        };
        stream.deadline.lift();
        active.on_request();
        connections.end_oldest();
        assert_eq!([&stream, &active, &idle, &newest].map(is_ended), [false, false, true, false]);
        idle.on_request();
        connections.end_oldest();
        assert_eq!([&stream, &active, &newest].map(is_ended), [false, false, true]);
        drop((stream, active, idle, newest));
        assert!(connections.open().is_empty());
    }

    #[tokio::test]
    async fn request_behind_more_half_open_connections_than_allowed_is_answered() {
        let listener = listen("--listen", "127.0.0.1:0".parse().unwrap()).unwrap();
        let at = listener.local_addr().unwrap();
        let alive = |_| async { Ok::<_, Infallible>(Response::new("alive".to_owned())) };
        let server = tokio::spawn(serve(listener, None, service_fn(alive)));
        let mut half_open = Vec::new();
        for _ in 0..=CONNECTIONS_MAX {
            let mut stream = TcpStream::connect(at).await.unwrap();
            stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n").await.unwrap();
            half_open.push(stream);
        }
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream
            .write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("alive"), "{answer}");
        // The first one was ended without an answer, and the last one is still open: no time limit has passed.
        assert_eq!(half_open[0].read(&mut [0]).await.unwrap_or(0), 0);
        assert!(
            half_open[CONNECTIONS_MAX].try_read(&mut [0]).is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
        );
        server.abort();
    }
}
