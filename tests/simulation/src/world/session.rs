//! A session as the recipes have it: the store over the simulated servers. Requests take time, and their connection may be lost before
//! they are done, or after.

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

use super::{MachineId, State, World};

/// How long a machine that reaches no server waits before it says so, in milliseconds.
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
    /// A session from the office, as soon as there can be one.
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

/// Whoever waits for an answer, until it is given one.
type Waiting<T> = Arc<Mutex<Option<oneshot::Sender<Result<T>>>>>;

fn give<T>(waiting: &Waiting<T>, answer: Result<T>) {
    let sender = waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
    // Whoever waited may have given up.
    let _ = sender.map(|sender| sender.send(answer));
}

impl Client {
    /// Sends a request about a znode: `perform` is what the servers do.
    fn request<T: Send + 'static>(
        &self,
        path: &str,
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
        let waiting: Waiting<T> = Arc::new(Mutex::new(Some(sender)));
        self.world.with(|state| {
            let fail = Arc::clone(&waiting);
            if let Some(client) = state.servers.sessions.get_mut(&session) {
                client.pending.push(Box::new(move |error| give(&fail, Err(error))));
            }
            state.at(machine, move |state| state.submit(session, of_variable, perform, waiting));
        });
        Box::pin(async move { receiver.await.unwrap_or(Err(Error::ConnectionLost)) })
    }

    fn read<T: Send + 'static>(
        &self,
        path: &str,
        read: impl FnOnce(&mut Tree, SessionId) -> Result<T> + Send + 'static,
    ) -> Answer<T> {
        self.request(path, |state, session| state.read_at_replica(session, |tree| read(tree, session)))
    }

    fn write<T: Send + 'static>(
        &self,
        op: Op,
        answer: impl FnOnce(OpAnswer) -> Option<T> + Send + 'static,
    ) -> Answer<T> {
        let path = op.path().to_owned();
        self.request(&path, move |state, session| {
            let done = state.commit(session, vec![op], true)?.pop();
            state.sync(session);
            Ok(done.and_then(answer).expect("an operation is answered in its own kind"))
        })
    }
}

impl State {
    /// A request is under way to the servers.
    fn submit<T: Send + 'static>(
        &mut self,
        session: SessionId,
        of_variable: bool,
        perform: impl FnOnce(&mut Self, SessionId) -> Result<T> + Send + 'static,
        waiting: Waiting<T>,
    ) {
        let Some(client) = self.servers.sessions.get(&session) else { return };
        let connection = client.connection;
        // Of requests under way when the connection is lost some arrive all the same, until the client is connected anew.
        let arrives_late = self.random.random::<bool>();
        let ms = self.arrival(session);
        self.after(ms, move |state| {
            let Some(client) = state.servers.sessions.get(&session) else { return };
            let lost = client.connection != connection;
            if lost && (client.connected || !arrives_late || state.servers.away) {
                return;
            }
            let office = client.machine == MachineId::OFFICE;
            let rate = if of_variable { state.rates.variable_lost } else { state.rates.request_lost };
            if !lost && !office && state.chance(rate) {
                return state.lose_connection(session);
            }
            let answer = perform(state, session);
            if lost {
                return;
            }
            if matches!(answer, Err(Error::SessionExpired)) {
                return state.answer(session, move |state| state.tell_end(session));
            }
            if !office && state.chance(state.rates.answer_lost) {
                return state.lose_connection(session);
            }
            state.answer(session, move |_| give(&waiting, answer));
        });
        self.forget_answered(session);
    }

    /// Those that were answered need not be told when the connection is lost.
    fn forget_answered(&mut self, session: SessionId) {
        const PENDING_MAX: usize = 512;
        if let Some(client) = self.servers.sessions.get_mut(&session)
            && client.pending.len() > PENDING_MAX
        {
            // Answers come in the order of the requests: the oldest are answered.
            client.pending.drain(..PENDING_MAX / 2);
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
        self.request(&path, move |state, session| {
            let answers = state.commit(session, ops, false)?;
            state.sync(session);
            Ok(answers)
        })
    }

    fn sync(&self, path: &str) -> Answer<()> {
        self.request(path, |state, session| {
            state.sync(session);
            Ok(())
        })
    }

    fn get_and_watch(&self, path: &str) -> Answer<(Vec<u8>, Stat, OneShot)> {
        let asked = path.to_owned();
        self.request(path, move |state, session| {
            let (data, stat) = state.read_at_replica(session, |tree| tree.get(session, &asked))?;
            Ok((data, stat, one_shot(state.watch(session, &asked, WatchKind::Data))))
        })
    }

    fn exists_and_watch(&self, path: &str) -> Answer<(Option<Stat>, OneShot)> {
        let asked = path.to_owned();
        self.request(path, move |state, session| {
            let stat = state.read_at_replica(session, |tree| tree.exists(session, &asked))?;
            Ok((stat, one_shot(state.watch(session, &asked, WatchKind::Data))))
        })
    }

    fn children_and_watch(&self, path: &str) -> Answer<(Vec<String>, OneShot)> {
        let asked = path.to_owned();
        self.request(path, move |state, session| {
            let names = state.read_at_replica(session, |tree| tree.children(session, &asked))?;
            Ok((names, one_shot(state.watch(session, &asked, WatchKind::Children))))
        })
    }

    fn watch_tree(&self, path: &str) -> Answer<Box<dyn Events>> {
        let asked = path.to_owned();
        self.request(path, move |state, session| {
            let events = state.watch_tree(session, &asked);
            Ok(Box::new(Stream(events)) as Box<dyn Events>)
        })
    }

    fn session(&self) -> watch::Receiver<Session> {
        self.state.clone()
    }

    fn close(&self) -> Answer<()> {
        self.request("/", |state, session| {
            state.end_session(session);
            state.answer(session, move |state| state.tell_end(session));
            Ok(())
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let session = self.session;
        // Nothing is heard of it any more.
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
