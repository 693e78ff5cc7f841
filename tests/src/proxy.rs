//! A faulty connection between a client and a server on loopback: connections break, stall, stay half open,
//! or lose the answer to an executed request.
//!
//! ```no_run
//! let proxy = taskwork_tests::proxy::Proxy::start("127.0.0.1:2181".parse()?)?;
//! println!("connect to {}", proxy.address());
//! proxy.hold(taskwork_tests::proxy::Way::ToServer); // writes are delayed without an error
//! proxy.release();
//! # Ok::<(), anyhow::Error>(())
//! ```

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};

/// The direction in which bytes travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// A proxy in front of one server. Its connections end when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

/// The treatment of a client that connects.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Door {
    #[default]
    Open,
    /// It is accepted and its connection is closed.
    Closed,
    /// It is accepted and receives nothing.
    Silent,
}

#[derive(Debug, Default)]
struct State {
    door: Door,
    held: Vec<Way>,
    answers_swallowed: bool,
    /// The bytes of the next request whose answer, and connection, is to be lost.
    fatal: Option<Vec<u8>>,
    /// The connections whose next answer is to be lost.
    doomed: Vec<u64>,
    /// The number of answers lost in this way.
    lost_answers: usize,
    /// Both ends of every connection, by its number.
    ends: Vec<(u64, TcpStream)>,
    next_connection: u64,
    stopped: bool,
}

/// Maximum time for the server to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of bytes forwarded at once.
const PASSED_BYTES_MAX: usize = 64 << 10;

impl Proxy {
    /// Listens on a free port, and forwards everything to a server and back.
    ///
    /// # Errors
    /// If there is no free port.
    pub fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port for a proxy")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { server, state: Mutex::default(), changed: Condvar::new() });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept(&listener));
        Ok(Self { address, shared })
    }

    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks every connection and rejects new ones.
    pub fn cut(&self) {
        self.shared.set(|state| state.door = Door::Closed);
        self.drop_connections();
    }

    /// Breaks every connection; clients may connect again.
    pub fn drop_connections(&self) {
        self.shared.set(State::close_all);
    }

    /// Accepts every new connection but never sends anything on it. Existing connections are not affected.
    pub fn stay_half_open(&self) {
        self.shared.set(|state| state.door = Door::Silent);
    }

    /// Holds back all data in this direction until it is [released](Self::release). Nothing is lost, and
    /// neither side notices.
    pub fn hold(&self, way: Way) {
        self.shared.set(|state| state.held.push(way));
    }

    /// Forwards the held data.
    pub fn release(&self) {
        self.shared.set(|state| state.held.clear());
    }

    /// Forwards requests and discards their answers until [`restore`](Self::restore), which breaks these
    /// connections.
    pub fn swallow_answers(&self) {
        self.shared.set(|state| state.answers_swallowed = true);
    }

    /// Forwards the next request that contains these bytes; the connection breaks instead of returning the
    /// answer.
    pub fn lose_answer_to(&self, bytes: &[u8]) {
        self.shared.set(|state| state.fatal = Some(bytes.to_vec()));
    }

    /// Cancels [`lose_answer_to`](Self::lose_answer_to), and resets the count.
    pub fn forgive(&self) {
        self.shared.set(|state| (state.fatal, state.lost_answers) = (None, 0));
    }

    /// Returns the number of answers lost by [`lose_answer_to`](Self::lose_answer_to).
    pub fn lost_answers(&self) -> usize {
        self.shared.lock().lost_answers
    }

    /// Accepts clients again, and forwards everything. Connections with discarded data are broken.
    pub fn restore(&self) {
        self.shared.set(|state| {
            if state.answers_swallowed || state.door == Door::Silent {
                state.close_all();
            }
            (state.door, state.answers_swallowed, state.fatal) = (Door::Open, false, None);
            state.held.clear();
        });
    }
}

impl State {
    fn close_all(&mut self) {
        self.ends.drain(..).for_each(|(_, end)| drop(end.shutdown(Shutdown::Both)));
    }

    fn close(&mut self, connection: u64) {
        self.ends.retain(|(of, end)| {
            let keep = *of != connection;
            if !keep {
                let _ = end.shutdown(Shutdown::Both);
            }
            keep
        });
    }

    fn is_open(&self, connection: u64) -> bool {
        self.ends.iter().any(|(of, _)| *of == connection)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.lock().stopped {
                return;
            }
            if let Ok(client) = client {
                let this = Arc::clone(&self);
                thread::spawn(move || this.connect(client));
            }
        }
    }

    fn connect(self: Arc<Self>, client: TcpStream) {
        let door = self.lock().door;
        let server = match door {
            Door::Closed => return,
            Door::Silent => None,
            Door::Open => match TcpStream::connect_timeout(&self.server, CONNECT_TIMEOUT) {
                Ok(server) => Some(server),
                Err(_) => return,
            },
        };
        let mut ends = vec![client];
        ends.extend(server);
        // Each thread and the list have their own handle to the same socket.
        let handles = || ends.iter().map(TcpStream::try_clone).collect::<std::io::Result<Vec<_>>>();
        let (Ok(listed), Ok(reading), Ok(writing)) = (handles(), handles(), handles()) else { return };
        let mut state = self.lock();
        if state.stopped || state.door != door {
            return;
        }
        let connection = state.next_connection;
        state.next_connection += 1;
        state.ends.extend(listed.into_iter().map(|end| (connection, end)));
        drop(state);
        let (Ok([from_client, from_server]), Ok([to_client, to_server])) =
            (<[TcpStream; 2]>::try_from(reading), <[TcpStream; 2]>::try_from(writing))
        else {
            return;
        };
        let _ = (to_server.set_nodelay(true), to_client.set_nodelay(true));
        let back = Arc::clone(&self);
        thread::spawn(move || back.pass(connection, Way::ToClient, from_server, to_client));
        self.pass(connection, Way::ToServer, from_client, to_server);
    }

    /// Forwards one direction of a connection until it ends.
    fn pass(&self, connection: u64, way: Way, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = vec![0; PASSED_BYTES_MAX];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let Some(passes) = self.judge(connection, way, &bytes[..count]) else { break };
            if passes && to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        self.lock().close(connection);
    }

    /// Waits while bytes are held back, then returns whether to forward them. `None` breaks the connection.
    fn judge(&self, connection: u64, way: Way, bytes: &[u8]) -> Option<bool> {
        let mut state = self.lock();
        while state.held.contains(&way) && state.is_open(connection) && !state.stopped {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if !state.is_open(connection) {
            return None;
        }
        match way {
            Way::ToServer => {
                let found = |needle: &Vec<u8>| bytes.windows(needle.len()).any(|part| part == needle);
                if state.fatal.as_ref().is_some_and(found) {
                    state.fatal = None;
                    state.doomed.push(connection);
                }
                Some(true)
            }
            Way::ToClient if state.doomed.contains(&connection) => {
                state.doomed.retain(|doomed| *doomed != connection);
                state.lost_answers += 1;
                None
            }
            Way::ToClient => Some(!state.answers_swallowed),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.set(|state| {
            state.stopped = true;
            state.close_all();
        });
        // The accepting thread checks whether it should stop when a client connects.
        let _ = TcpStream::connect_timeout(&self.address, CONNECT_TIMEOUT);
    }
}
