//! Copies of resources from the other nodes of a job, so that the store is read about once for all of them.
//!
//! ```text
//!   node ──want──▶ its parent in the tree of this content ──▶ the nodes before that one, or the store
//!        ◀─coming, lacks or has─┘
//!        ◀═══════ content ══════╡
//! ```
//!
//! The nodes have an order for each content, by a hash, in which they form a tree, so that each node sends few copies. A node asks
//! its parent, the nodes above that one, and then the others before itself, which also fetch a content that they do not need
//! themselves. If none of them gets the content, it asks the later ones, which only answer whether they have it, and then reads
//! the store. No node waits for the fetch of a later one, so no two wait for each other. A node that is lost, does not answer,
//! or fetches without progress, is skipped.

use std::{
    any::Any,
    collections::{BTreeSet, HashMap},
    fmt,
    fs::File,
    io::{self, ErrorKind, Seek as _},
    iter,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::Ordering::Relaxed,
        mpsc::{self, Sender},
    },
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use taskwork::{
    NodeId,
    companion::{CompanionContext, CompanionEvent, FetchError, Messenger, ObjectName, Objects},
};
use tokio::runtime::Handle;

use super::{
    RESOURCE_BYTES_MAX, Resource, Resources,
    cache::{LocalFile, Progress},
};
use crate::store::Store;

/// The maximum size of a message, in bytes.
const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// The maximum number of nodes that ask a node first: it can serve twice as many at a time.
const CHILDREN_MAX: usize = 8;

/// The interval of requests to a node that is fetching a content.
const REPEAT: Duration = Duration::from_millis(100);

/// The time without an answer, or without a part of a content, after which a node is skipped.
const SILENCE: Duration = Duration::from_secs(5);

/// The time without progress after which a node that is fetching a content is skipped.
const STALL: Duration = Duration::from_secs(30);

/// The time after which a node that is fetching a content is skipped: the largest one takes less at 20 MB/s.
const COMING_MAX: Duration = Duration::from_secs(3600);

/// A message between nodes. It may be lost or repeated.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    /// The node with these resources wants the content of this reference, which the other one fetches if `starts`.
    Want { resources: u64, reference: String, starts: bool },
    /// An answer about the content with this digest.
    Answer(String, Answer),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The node offers this number of bytes.
    Has(u64),
    /// The node is fetching it, with this progress in bytes.
    Coming(u64),
    /// The node cannot fetch it now.
    Lacks,
}

/// The connections of a node to the others of a job.
pub(super) trait Mesh: fmt::Debug + Send + Sync {
    fn node(&self) -> NodeId;
    fn send(&self, to: NodeId, message: Vec<u8>);
    /// Offers a file until the returned value is dropped.
    fn offer(&self, name: ObjectName, file: File) -> Box<dyn Any + Send>;
    /// Fetches a content into an empty file, and verifies it.
    fn fetch(&self, name: ObjectName, file: File, from: NodeId) -> io::Result<()>;
}

/// The other nodes of a job.
#[derive(Debug)]
pub(crate) struct Peers {
    mesh: Box<dyn Mesh>,
    resources: Arc<Resources>,
    store: Store,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    nodes: BTreeSet<NodeId>,
    /// The requests of this node, by the asked node and the digest.
    asked: HashMap<(NodeId, String), Sender<Answer>>,
    /// The offered files by their digests.
    offers: HashMap<String, (Weak<LocalFile>, Box<dyn Any + Send>)>,
}

impl State {
    /// Ends the offers of files that were removed: an offer keeps the file open, and its space in use.
    fn end_offers(&mut self) {
        self.offers.retain(|_, (file, _)| file.strong_count() > 0);
    }
}

impl Peers {
    /// Joins the nodes of a job, until it leaves them.
    pub(crate) fn join(cx: &CompanionContext, resources: &Arc<Resources>, store: &Store) -> Arc<Self> {
        let (objects, messenger) = (cx.objects().clone(), cx.messenger().clone());
        let mesh = JobMesh { node: cx.node(), objects, messenger, runtime: Handle::current() };
        Self::with(mesh, resources, store)
    }

    /// Ends all requests: the companion receives no more messages.
    pub(crate) fn leave(&self) {
        let mut state = self.state();
        state.nodes.clear();
        state.asked.clear();
        state.offers.clear();
    }

    pub(super) fn with(mesh: impl Mesh + 'static, resources: &Arc<Resources>, store: &Store) -> Arc<Self> {
        let (resources, store) = (Arc::clone(resources), store.clone());
        let peers = Arc::new(Self { mesh: Box::new(mesh), resources, store, state: Mutex::default() });
        peers.resources.add_peers(&peers);
        peers
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn on_event(&self, event: &CompanionEvent) {
        match event {
            CompanionEvent::Joined { node } if *node != self.mesh.node() => {
                self.state().nodes.insert(*node);
            }
            CompanionEvent::Left { node } => {
                self.state().nodes.remove(node);
                self.give_up(*node);
            }
            CompanionEvent::Refused { to, .. } => self.give_up(*to),
            CompanionEvent::Message { from, bytes } => self.on_message(*from, bytes),
            _ => {}
        }
    }

    /// Ends the requests to a node.
    fn give_up(&self, node: NodeId) {
        for ((asked, _), answers) in &self.state().asked {
            if *asked == node {
                // The request may have ended.
                let _ = answers.send(Answer::Lacks);
            }
        }
    }

    fn on_message(&self, from: NodeId, bytes: &[u8]) {
        let config = bincode::config::standard().with_limit::<MESSAGE_BYTES_MAX>();
        match bincode::serde::decode_from_slice(bytes, config) {
            Ok((Message::Want { resources, reference, starts }, _)) => {
                let Some(resource) = Resource::parse(&reference) else {
                    return tracing::warn!(%from, "a request for a resource is damaged");
                };
                // Nodes of one process share their files.
                let is_own = resources == self.resources.id;
                let answer = if is_own { Answer::Lacks } else { self.share(&resource, starts) };
                self.send(from, &Message::Answer(resource.digest, answer));
            }
            Ok((Message::Answer(digest, answer), _)) => {
                if let Some(answers) = self.state().asked.get(&(from, digest)) {
                    // The request may have ended.
                    let _ = answers.send(answer);
                }
            }
            Err(error) => tracing::warn!(%from, %error, "a message about a resource is damaged"),
        }
    }

    pub(super) fn on_files_removed(&self) {
        self.state().end_offers();
    }

    fn send(&self, to: NodeId, message: &Message) {
        let encoded = bincode::serde::encode_to_vec(message, bincode::config::standard());
        self.mesh.send(to, encoded.expect("texts and numbers can be encoded"));
    }

    /// Offers a content if it is here.
    fn share(&self, resource: &Resource, starts: bool) -> Answer {
        let file = match self.resources.share(&self.store, resource, starts) {
            Ok(file) => file,
            Err(answer) => return answer,
        };
        let mut state = self.state();
        state.end_offers();
        if !state.offers.contains_key(&resource.digest) {
            let (Some(name), Ok(content)) = (name_of(resource, file.bytes), File::open(&file.path)) else {
                return Answer::Lacks;
            };
            let offer = self.mesh.offer(name, content);
            state.offers.insert(resource.digest.clone(), (Arc::downgrade(&file), offer));
        }
        Answer::Has(file.bytes)
    }

    /// Fetches a content from another node into an empty file, which is empty afterwards if no node has the content.
    /// Returns its size.
    ///
    /// # Errors
    /// If the disk is full, or the file cannot be emptied.
    pub(super) fn fetch(
        &self,
        resource: &Resource,
        mut file: &File,
        progress: &Progress,
    ) -> io::Result<Option<u64>> {
        for (node, is_before) in self.order(&resource.digest) {
            let found = self.ask(node, resource, is_before, progress);
            let Some(bytes) = found.filter(|bytes| *bytes <= RESOURCE_BYTES_MAX) else { continue };
            let Some(name) = name_of(resource, bytes) else { continue };
            match self.mesh.fetch(name, file.try_clone()?, node) {
                Ok(()) => return Ok(Some(bytes)),
                // Copies from the other nodes do not fit either.
                Err(error) if error.kind() == ErrorKind::StorageFull => return Err(error),
                Err(error) => {
                    tracing::info!(name = resource.name, %node, %error, "a resource cannot be copied from a node");
                    file.set_len(0)?;
                    file.rewind()?;
                }
            }
        }
        Ok(None)
    }

    /// Returns the other nodes in the order of requests for a content, each with whether it is before this one.
    fn order(&self, digest: &str) -> Vec<(NodeId, bool)> {
        let this = self.mesh.node();
        let mut all: Vec<_> = self.state().nodes.iter().copied().chain([this]).collect();
        all.sort_by_cached_key(|node| {
            (*blake3::hash(format!("{digest} {node}").as_bytes()).as_bytes(), *node)
        });
        let place = all.iter().position(|node| *node == this).expect("it was added");
        let parent = |place: &usize| place.checked_sub(1).map(|before| before / CHILDREN_MAX);
        let above: Vec<_> = iter::successors(parent(&place), parent).collect();
        let others = (0..all.len()).filter(|other| *other != place && !above.contains(other));
        above.iter().copied().chain(others).map(|other| (all[other], other < place)).collect()
    }

    /// Waits until a node has a content, and returns its size, or `None` if the node does not get it.
    fn ask(&self, node: NodeId, resource: &Resource, starts: bool, progress: &Progress) -> Option<u64> {
        let (send, answers) = mpsc::channel();
        let key = (node, resource.digest.clone());
        self.state().asked.insert(key.clone(), send);
        let want = Message::Want { resources: self.resources.id, reference: resource.reference(), starts };
        let mut patience = Patience::new(Instant::now());
        let found = 'asked: loop {
            if !self.state().nodes.contains(&node) || patience.is_over(Instant::now()) {
                break None;
            }
            self.send(node, &want);
            let repeat = Instant::now() + REPEAT;
            while let Ok(answer) = answers.recv_timeout(repeat.saturating_duration_since(Instant::now())) {
                match answer {
                    Answer::Has(bytes) => break 'asked Some(bytes),
                    Answer::Lacks => break 'asked None,
                    Answer::Coming(bytes) => {
                        patience.on_coming(bytes, Instant::now());
                        progress.asked.store(bytes, Relaxed);
                    }
                }
            }
        };
        self.state().asked.remove(&key);
        found
    }
}

/// The times that decide whether a node is still asked for a content.
#[derive(Debug)]
struct Patience {
    started: Instant,
    heard: Instant,
    advanced: Instant,
    bytes: u64,
}

impl Patience {
    fn new(now: Instant) -> Self {
        Self { started: now, heard: now, advanced: now, bytes: 0 }
    }

    fn on_coming(&mut self, bytes: u64, now: Instant) {
        self.heard = now;
        if bytes != self.bytes {
            (self.bytes, self.advanced) = (bytes, now);
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        now >= self.heard + SILENCE || now >= self.advanced + STALL || now >= self.started + COMING_MAX
    }
}

fn name_of(resource: &Resource, bytes: u64) -> Option<ObjectName> {
    let hash = blake3::Hash::from_hex(&resource.digest).ok()?;
    Some(ObjectName::new(*hash.as_bytes(), bytes))
}

/// The connections of a companion.
#[derive(Debug)]
struct JobMesh {
    node: NodeId,
    objects: Objects,
    messenger: Messenger,
    runtime: Handle,
}

impl Mesh for JobMesh {
    fn node(&self) -> NodeId {
        self.node
    }

    fn send(&self, to: NodeId, message: Vec<u8>) {
        if let Err(error) = self.messenger.send(to, message) {
            tracing::debug!(%to, %error, "a message about a resource is not sent");
        }
    }

    fn offer(&self, name: ObjectName, file: File) -> Box<dyn Any + Send> {
        Box::new(self.objects.offer_content(name, file))
    }

    fn fetch(&self, name: ObjectName, file: File, from: NodeId) -> io::Result<()> {
        let fetching = self.objects.fetch_to_file(name, file, move || vec![from], SILENCE);
        self.runtime.block_on(fetching).map_err(|error| match error {
            FetchError::Sink(error) => error,
            error => io::Error::other(error),
        })
    }
}

#[cfg(test)]
mod tests;
