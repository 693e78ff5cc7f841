//! What lies between a client and a server on loopback, and can go wrong: connections break, stall, stay half
//! open, or lose the answer to what was done.
//!
//! ```no_run
//! let proxy = taskwork_tests::proxy::Proxy::start("127.0.0.1:2181".parse()?)?;
//! println!("connect to {}", proxy.address());
//! proxy.hold(taskwork_tests::proxy::Way::ToServer); // what is written waits; nobody is told
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

/// The way that bytes take.
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

/// What becomes of a client that connects.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Door {
    #[default]
    Open,
    /// It is accepted and dropped.
    Closed,
    /// It is accepted and hears nothing.
    Silent,
}

#[derive(Debug, Default)]
struct State {
    door: Door,
    held: Vec<Way>,
    answers_swallowed: bool,
    /// The answer to the next request with these bytes is lost, with its connection.
    fatal: Option<Vec<u8>>,
    /// The connections of which the next answer is lost.
    doomed: Vec<u64>,
    /// How often an answer was lost like that.
    lost_answers: usize,
    /// Both ends of every connection, by its number.
    ends: Vec<(u64, TcpStream)>,
    next_connection: u64,
    stopped: bool,
}

/// How long the server may take to take a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How many bytes are passed on at once.
const PASSED_BYTES_MAX: usize = 64 << 10;

impl Proxy {
    /// Listens on a port of its own, and passes on what is said there to a server and back.
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

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks every connection and lets none come back.
    pub fn cut(&self) {
        self.shared.set(|state| state.door = Door::Closed);
        self.drop_connections();
    }

    /// Breaks every connection; clients may connect again.
    pub fn drop_connections(&self) {
        self.shared.set(State::close_all);
    }

    /// Takes every connection from now on and never says a word. Those that are there stay as they are.
    pub fn stay_half_open(&self) {
        self.shared.set(|state| state.door = Door::Silent);
    }

    /// Keeps back what goes this way until it is [released](Self::release). Nothing is lost, and nobody is
    /// told.
    pub fn hold(&self, way: Way) {
        self.shared.set(|state| state.held.push(way));
    }

    /// Passes on what was kept back.
    pub fn release(&self) {
        self.shared.set(|state| state.held.clear());
    }

    /// Passes requests on and throws their answers away until [`restore`](Self::restore), which breaks these
    /// connections.
    pub fn swallow_answers(&self) {
        self.shared.set(|state| state.answers_swallowed = true);
    }

    /// Passes the next request that has these bytes on; when the server answers, the connection breaks
    /// instead.
    pub fn lose_answer_to(&self, bytes: &[u8]) {
        self.shared.set(|state| state.fatal = Some(bytes.to_vec()));
    }

    /// Takes [`lose_answer_to`](Self::lose_answer_to) back, and counts from nothing again.
    pub fn forgive(&self) {
        self.shared.set(|state| (state.fatal, state.lost_answers) = (None, 0));
    }

    /// How many answers were lost by [`lose_answer_to`](Self::lose_answer_to).
    pub fn lost_answers(&self) -> usize {
        self.shared.lock().lost_answers
    }

    /// Lets clients connect again, and passes everything on. Connections of which something was thrown away
    /// break.
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
        // Each thread and the list have a handle of their own to the same socket.
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

    /// Passes on what goes one way until the connection ends.
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

    /// Waits while bytes are held; then whether they are passed on. `None` breaks the connection.
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
        // The thread that accepts looks whether it is to stop when somebody comes.
        let _ = TcpStream::connect_timeout(&self.address, CONNECT_TIMEOUT);
    }
}
