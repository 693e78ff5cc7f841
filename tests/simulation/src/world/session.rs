//! The store over the simulated servers, as the recipes use it. Requests take time, and their connection may
//! be lost before or after they are executed.

use std::{
    future::{Future, ready},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rand::Rng as _;
use tokio::sync::{mpsc, oneshot, watch};
use zk::{
    Answer, CreateMode, Error, Events, OneShot, Op, OpAnswer, Result, Session, Stat, Store, Version,
    WatchEvent,
    tree::{SessionId, Tree, WatchKind},
};

use super::{MachineId, State, World, servers::Pending};

/// The time after which a machine that reaches no server reports that, in milliseconds.
const CONNECT_TIMEOUT_MS: u64 = 300;

/// Opens a session from a machine.
pub(super) async fn open(world: World, machine: MachineId) -> Result<Arc<dyn Store>> {
    let session = world.with(|state| state.open_session(machine));
    let Some(session) = session else {
        tokio::time::sleep(Duration::from_millis(CONNECT_TIMEOUT_MS)).await;
        return Err(Error::ConnectionLost);
    };
    let state = world.with(|state| state.servers.sessions[&session].state.subscribe());
    Ok(Arc::new(Client { world, session, machine, state }))
}

impl World {
    /// Opens a session from the office, as soon as that is possible.
    pub(crate) async fn office(&self) -> Arc<dyn Store> {
        loop {
            if let Ok(store) = open(self.clone(), MachineId::OFFICE).await {
                return store;
            }
        }
    }
}

#[derive(Debug)]
struct Client {
    world: World,
    session: SessionId,
    machine: MachineId,
    state: watch::Receiver<Session>,
}

/// The sender of an answer, until it is sent.
struct Waiting<T>(Arc<Mutex<Option<oneshot::Sender<Result<T>>>>>);

impl<T> Waiting<T> {
    fn give(&self, answer: Result<T>) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The receiver may have been dropped.
        let _ = sender.map(|sender| sender.send(answer));
    }
}

impl<T: Send> Pending for Waiting<T> {
    fn is_answered(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn fail(&self, error: Error) {
        self.give(Err(error));
    }
}

impl<T> Clone for Waiting<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// The servers that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// Any server can answer.
    Reads,
    /// The leader: a write, or a `sync`.
    Leader,
}

/// A request under way.
struct Request<T, F> {
    session: SessionId,
    /// The connection it was sent on, and the time.
    connection: u32,
    sent: u64,
    asks: Asks,
    of_variable: bool,
    /// Whether it arrives although the connection is lost, as some requests do until the client is connected
    /// again.
    arrives_late: bool,
    perform: F,
    waiting: Waiting<T>,
}

impl Client {
    /// Sends a request about a znode; the servers execute `perform`.
    fn request<T: Send + 'static>(
        &self,
        path: &str,
        asks: Asks,
        perform: impl FnOnce(&mut State, SessionId) -> Result<T> + Send + 'static,
    ) -> Answer<T> {
        let (session, machine) = (self.session, self.machine);
        match *self.state.borrow() {
            Session::Expired => return Box::pin(ready(Err(Error::SessionExpired))),
            Session::Disconnected => {
                return Box::pin(async {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    Err(Error::ConnectionLost)
                });
            }
            Session::Connected => {}
        }
        let of_variable = path.contains("/vars/");
        let (sender, receiver) = oneshot::channel();
        let waiting = Waiting(Arc::new(Mutex::new(Some(sender))));
        self.world.with(|state| {
            let (sent, arrives_late) = (state.now, state.random.random());
            let Some(client) = state.servers.sessions.get_mut(&session) else { return };
            client.pending.push(Box::new(waiting.clone()));
            let connection = client.connection;
            let request =
                Request { session, connection, sent, asks, of_variable, arrives_late, perform, waiting };
            state.at(machine, move |state| state.submit(request));
        });
        Box::pin(async move { receiver.await.unwrap_or(Err(Error::ConnectionLost)) })
    }

    fn read<T: Send + 'static>(
        &self,
        path: &str,
        read: impl FnOnce(&mut Tree, SessionId) -> Result<T> + Send + 'static,
    ) -> Answer<T> {
        self.request(path, Asks::Reads, |state, session| {
            state.read_at_replica(session, |tree| read(tree, session))
        })
    }

    fn write<T: Send + 'static>(
        &self,
        op: Op,
        answer: impl FnOnce(OpAnswer) -> Option<T> + Send + 'static,
    ) -> Answer<T> {
        let path = op.path().to_owned();
        self.request(&path, Asks::Leader, move |state, session| {
            let done = state.commit(session, vec![op], true)?.pop();
            Ok(done.and_then(answer).expect("an operation is answered in its own kind"))
        })
    }
}

impl State {
    /// Transmits a request to the servers.
    fn submit<T, F>(&mut self, request: Request<T, F>)
    where
        T: Send + 'static,
        F: FnOnce(&mut Self, SessionId) -> Result<T> + Send + 'static,
    {
        let session = request.session;
        let ms = self.arrival(session);
        self.after(ms, move |state| state.reach(request));
        self.forget_answered(session);
    }

    /// Handles a request that has arrived at a server.
    fn reach<T, F>(&mut self, request: Request<T, F>)
    where
        T: Send + 'static,
        F: FnOnce(&mut Self, SessionId) -> Result<T> + Send + 'static,
    {
        let Some(client) = self.servers.sessions.get(&request.session) else { return };
        let lost = client.connection != request.connection;
        if lost && (client.connected || !request.arrives_late) {
            return;
        }
        let (office, held) = (client.machine == MachineId::OFFICE, client.held == Some(request.connection));
        let rate = if request.of_variable { self.rates.variable_lost } else { self.rates.request_lost };
        if !lost && !office && self.chance(rate) {
            return self.lose_connection(request.session);
        }
        let of_leader = request.asks == Asks::Leader;
        if self.servers.away {
            // The lost leader may have logged it.
            if of_leader {
                self.servers.proposals.push(Box::new(|state| state.perform(request)));
            }
        } else if (of_leader && self.servers.proposals.is_stalled()) || held {
            self.hold(request);
        } else {
            self.perform(request);
        }
    }

    /// Makes a request wait until the leader commits again.
    fn hold<T, F>(&mut self, request: Request<T, F>)
    where
        T: Send + 'static,
        F: FnOnce(&mut Self, SessionId) -> Result<T> + Send + 'static,
    {
        let Some(client) = self.servers.sessions.get_mut(&request.session) else { return };
        let machine = client.machine;
        if client.connection == request.connection {
            client.held = Some(request.connection);
        }
        self.give_up_in_time(request.sent, machine, request.waiting.clone());
        self.servers.proposals.push(Box::new(|state| state.perform(request)));
    }

    /// Executes and answers a request.
    fn perform<T, F>(&mut self, request: Request<T, F>)
    where
        T: Send + 'static,
        F: FnOnce(&mut Self, SessionId) -> Result<T> + Send + 'static,
    {
        let Request { session, connection, asks, perform, waiting, .. } = request;
        let Some(client) = self.servers.sessions.get(&session) else { return };
        let (lost, office) = (client.connection != connection, client.machine == MachineId::OFFICE);
        if lost && asks == Asks::Reads {
            return;
        }
        let answer = perform(self, session);
        if lost {
            return;
        }
        if asks == Asks::Leader {
            self.sync(session);
        }
        if matches!(answer, Err(Error::SessionExpired)) {
            return self.answer(session, move |state| state.notify_end(session));
        }
        if !office && self.chance(self.rates.answer_lost) {
            return self.lose_connection(session);
        }
        let shown = self.applied_for(session);
        self.answer(session, move |state| {
            state.show(session, shown);
            waiting.give(answer);
        });
    }

    /// Removes answered requests, which need no notice when the connection is lost.
    fn forget_answered(&mut self, session: SessionId) {
        const PENDING_MAX: usize = 512;
        if let Some(client) = self.servers.sessions.get_mut(&session)
            && client.pending.len() > client.pending_max.max(PENDING_MAX)
        {
            client.pending.retain(|pending| !pending.is_answered());
            client.pending_max = 2 * client.pending.len();
        }
    }
}

fn one_shot(receiver: oneshot::Receiver<WatchEvent>) -> OneShot {
    Box::pin(async { receiver.await.unwrap_or(WatchEvent::Ended) })
}

impl Store for Client {
    fn create(&self, path: &str, data: &[u8], mode: CreateMode) -> Answer<String> {
        let op = Op::Create { path: path.to_owned(), data: data.to_vec(), mode };
        self.write(op, |answer| if let OpAnswer::Created(path) = answer { Some(path) } else { None })
    }

    fn set(&self, path: &str, data: &[u8], version: Option<Version>) -> Answer<Version> {
        let op = Op::Set { path: path.to_owned(), data: data.to_vec(), version };
        self.write(op, |answer| if let OpAnswer::Set(version) = answer { Some(version) } else { None })
    }

    fn delete(&self, path: &str, version: Option<Version>) -> Answer<()> {
        self.write(Op::Delete { path: path.to_owned(), version }, |_| Some(()))
    }

    fn get(&self, path: &str) -> Answer<(Vec<u8>, Stat)> {
        let asked = path.to_owned();
        self.read(path, move |tree, session| tree.get(session, &asked))
    }

    fn exists(&self, path: &str) -> Answer<Option<Stat>> {
        let asked = path.to_owned();
        self.read(path, move |tree, session| tree.exists(session, &asked))
    }

    fn children(&self, path: &str) -> Answer<Vec<String>> {
        let asked = path.to_owned();
        self.read(path, move |tree, session| tree.children(session, &asked))
    }

    fn multi(&self, ops: Vec<Op>) -> Answer<Vec<OpAnswer>> {
        let path = ops.first().map_or("/", Op::path).to_owned();
        self.request(&path, Asks::Leader, move |state, session| state.commit(session, ops, false))
    }

    fn sync(&self, path: &str) -> Answer<()> {
        self.request(path, Asks::Leader, |_, _| Ok(()))
    }

    fn get_and_watch(&self, path: &str) -> Answer<(Vec<u8>, Stat, OneShot)> {
        let asked = path.to_owned();
        self.request(path, Asks::Reads, move |state, session| {
            let (data, stat) = state.read_at_replica(session, |tree| tree.get(session, &asked))?;
            Ok((data, stat, one_shot(state.watch(session, &asked, WatchKind::Data, false))))
        })
    }

    fn exists_and_watch(&self, path: &str) -> Answer<(Option<Stat>, OneShot)> {
        let asked = path.to_owned();
        self.request(path, Asks::Reads, move |state, session| {
            let stat = state.read_at_replica(session, |tree| tree.exists(session, &asked))?;
            let absent = stat.is_none();
            Ok((stat, one_shot(state.watch(session, &asked, WatchKind::Data, absent))))
        })
    }

    fn children_and_watch(&self, path: &str) -> Answer<(Vec<String>, OneShot)> {
        let asked = path.to_owned();
        self.request(path, Asks::Reads, move |state, session| {
            let names = state.read_at_replica(session, |tree| tree.children(session, &asked))?;
            Ok((names, one_shot(state.watch(session, &asked, WatchKind::Children, false))))
        })
    }

    fn watch_tree(&self, path: &str) -> Answer<Box<dyn Events>> {
        let asked = path.to_owned();
        self.request(path, Asks::Reads, move |state, session| {
            let events = state.watch_tree(session, &asked);
            Ok(Box::new(Stream(events)) as Box<dyn Events>)
        })
    }

    fn session(&self) -> watch::Receiver<Session> {
        self.state.clone()
    }

    fn close(&self) -> Answer<()> {
        let machine = self.machine;
        self.request("/", Asks::Leader, move |state, session| {
            let node = state.machines.get(machine).node;
            state.closed.extend(node);
            state.end_session(session);
            state.answer(session, move |state| state.notify_end(session));
            Ok(())
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let session = self.session;
        // The servers no longer hear from it.
        self.world.with(|state| state.lose_client(session));
    }
}

/// A persistent watch.
struct Stream(mpsc::UnboundedReceiver<WatchEvent>);

impl Events for Stream {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = WatchEvent> + Send + '_>> {
        Box::pin(async { self.0.recv().await.unwrap_or(WatchEvent::Ended) })
    }
}
