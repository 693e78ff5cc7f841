//! Copies of resources from the other nodes of a job, so that the store is read about once for all of them.
//!
//! ```text
//!   node ──want──▶ node before it in the order of this content ──▶ the nodes before that one, or the store
//!        ◀─coming, lacks or has─┘
//!        ◀═══════ content ══════╡
//! ```
//!
//! The nodes have an order for each content, by a hash. A node asks those before it, the first one first, which also fetches
//! a content that it does not need itself. If none of them gets the content, it asks the later ones, which only answer whether
//! they have it, and then reads the store. No node waits for the fetch of a later one, so no two wait for each other. A node
//! that is lost, or does not answer, is skipped.

use std::{
    any::Any,
    collections::{BTreeSet, HashMap},
    fmt,
    fs::File,
    io::{self, Seek as _},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        mpsc::{self, Sender},
    },
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use taskwork::{CompanionContext, CompanionEvent, Messenger, NodeId, ObjectName, Objects};
use tokio::runtime::Handle;

use super::{RESOURCE_BYTES_MAX, Resource, Resources, cache::LocalFile};
use crate::store::Store;

/// The maximum size of a message, in bytes.
const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// The interval of requests to a node that is fetching a content.
const REPEAT: Duration = Duration::from_millis(100);

/// The time without an answer, or without a part of a content, after which a node is skipped.
const SILENCE: Duration = Duration::from_secs(5);

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
    /// The node is fetching it.
    Coming,
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
    fn fetch(&self, name: ObjectName, file: File, from: NodeId) -> Result<(), String>;
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

impl Peers {
    /// Joins the nodes of a job, until this is dropped.
    pub(crate) fn join(cx: &CompanionContext, resources: &Arc<Resources>, store: &Store) -> Arc<Self> {
        let (objects, messenger) = (cx.objects().clone(), cx.messenger().clone());
        let mesh = JobMesh { node: cx.node(), objects, messenger, runtime: Handle::current() };
        Self::with(mesh, resources, store)
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
        state.offers.retain(|_, (file, _)| file.strong_count() > 0);
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
    /// If the file cannot be emptied.
    pub(super) fn fetch(&self, resource: &Resource, mut file: &File) -> io::Result<Option<u64>> {
        for (node, is_before) in self.order(&resource.digest) {
            let found = self.ask(node, resource, is_before);
            let Some(bytes) = found.filter(|bytes| *bytes <= RESOURCE_BYTES_MAX) else { continue };
            let Some(name) = name_of(resource, bytes) else { continue };
            match self.mesh.fetch(name, file.try_clone()?, node) {
                Ok(()) => return Ok(Some(bytes)),
                Err(error) => {
                    tracing::info!(name = resource.name, %node, error, "a resource cannot be copied from a node");
                    file.set_len(0)?;
                    file.rewind()?;
                }
            }
        }
        Ok(None)
    }

    /// Returns the other nodes in the order of a content, each with whether it is before this one.
    fn order(&self, digest: &str) -> Vec<(NodeId, bool)> {
        let place = |node: NodeId| (*blake3::hash(format!("{digest} {node}").as_bytes()).as_bytes(), node);
        let this = place(self.mesh.node());
        let mut others: Vec<_> = self.state().nodes.iter().map(|node| place(*node)).collect();
        others.sort_unstable();
        others.into_iter().map(|other| (other.1, other < this)).collect()
    }

    /// Waits until a node has a content, and returns its size, or `None` if the node does not get it.
    fn ask(&self, node: NodeId, resource: &Resource, starts: bool) -> Option<u64> {
        let (send, answers) = mpsc::channel();
        let key = (node, resource.digest.clone());
        self.state().asked.insert(key.clone(), send);
        let want = Message::Want { resources: self.resources.id, reference: resource.reference(), starts };
        let mut heard = Instant::now();
        let found = loop {
            if !self.state().nodes.contains(&node) || heard.elapsed() >= SILENCE {
                break None;
            }
            self.send(node, &want);
            let repeat = Instant::now() + REPEAT;
            let mut next = || answers.recv_timeout(repeat.saturating_duration_since(Instant::now())).ok();
            match std::iter::from_fn(&mut next)
                .inspect(|_| heard = Instant::now())
                .find(|it| *it != Answer::Coming)
            {
                Some(Answer::Has(bytes)) => break Some(bytes),
                Some(_) => break None,
                None => {}
            }
        };
        self.state().asked.remove(&key);
        found
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

    fn fetch(&self, name: ObjectName, file: File, from: NodeId) -> Result<(), String> {
        let fetching = self.objects.fetch_to_file(name, file, move || vec![from], SILENCE);
        self.runtime.block_on(fetching).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        fs,
        io::{Read as _, Write as _},
        thread,
    };

    use tempfile::{TempDir, tempdir};

    use super::{super::tests_of_names::put, *};
    use crate::store::{Faulty, Objects as StoredObjects};

    /// Nodes in this process, each with a folder.
    #[derive(Debug, Default)]
    struct Net {
        nodes: Mutex<BTreeMap<NodeId, Arc<Peers>>>,
        offers: Mutex<HashMap<(NodeId, ObjectName), File>>,
        /// A node that is always fetching, until it is lost with its second request.
        stuck: Mutex<Option<(NodeId, u32)>>,
        /// A node that sends half of each content, and one that sends other contents.
        halves: Mutex<Option<NodeId>>,
        wrong: Mutex<Option<NodeId>>,
    }

    #[derive(Debug)]
    struct Link {
        node: NodeId,
        net: Arc<Net>,
    }

    impl Net {
        fn peers(&self, node: NodeId) -> Option<Arc<Peers>> {
            self.nodes.lock().unwrap().get(&node).cloned()
        }

        fn lose(&self, node: NodeId) {
            self.nodes.lock().unwrap().remove(&node);
            let rest: Vec<_> = self.nodes.lock().unwrap().values().cloned().collect();
            for peers in rest {
                peers.on_event(&CompanionEvent::Left { node });
            }
        }
    }

    impl Mesh for Link {
        fn node(&self) -> NodeId {
            self.node
        }

        fn send(&self, to: NodeId, bytes: Vec<u8>) {
            let is_last = {
                let mut stuck = self.net.stuck.lock().unwrap();
                let requests = stuck.as_mut().filter(|(node, _)| *node == to).map(|(_, requests)| requests);
                requests.map(|requests| {
                    *requests += 1;
                    *requests == 2
                })
            };
            match (is_last, self.net.peers(to)) {
                (Some(true), _) => self.net.lose(to),
                (Some(false), Some(stuck)) => {
                    let config = bincode::config::standard();
                    let Ok((Message::Want { reference, .. }, _)) =
                        bincode::serde::decode_from_slice(&bytes, config)
                    else {
                        return;
                    };
                    let digest = Resource::parse(&reference).unwrap().digest;
                    stuck.send(self.node, &Message::Answer(digest, Answer::Coming));
                }
                (None, Some(peers)) => {
                    peers.on_event(&CompanionEvent::Message { from: self.node, bytes });
                }
                (_, None) => {}
            }
        }

        fn offer(&self, name: ObjectName, file: File) -> Box<dyn Any + Send> {
            self.net.offers.lock().unwrap().insert((self.node, name), file);
            Box::new(())
        }

        fn fetch(&self, name: ObjectName, mut file: File, from: NodeId) -> Result<(), String> {
            let mut content = Vec::new();
            let mut offers = self.net.offers.lock().unwrap();
            let offered = offers.get_mut(&(from, name)).ok_or("it is not offered")?;
            offered.rewind().unwrap();
            offered.read_to_end(&mut content).unwrap();
            if *self.net.halves.lock().unwrap() == Some(from) {
                file.write_all(&content[..content.len() / 2]).unwrap();
                return Err("the connection was lost".to_owned());
            }
            if *self.net.wrong.lock().unwrap() == Some(from) {
                content.reverse();
            }
            file.write_all(&content).unwrap();
            let is_named = *blake3::hash(&content).as_bytes() == name.hash();
            is_named.then_some(()).ok_or_else(|| "another content".to_owned())
        }
    }

    /// Nodes of a job, the store, which counts its reads, and a content.
    struct Case {
        net: Arc<Net>,
        store: Store,
        faulty: Arc<Faulty>,
        resource: Resource,
        _folders: Vec<TempDir>,
    }

    const CONTENT: &str = "a content";

    impl Case {
        fn new(nodes: u64) -> Self {
            let faulty = Arc::<Faulty>::default();
            let objects = StoredObjects::new(Arc::clone(&faulty) as _).unwrap();
            let store = Store::new(objects).unwrap();
            let resource = put(&store, "table", CONTENT);
            let (net, mut folders) = (Arc::<Net>::default(), Vec::new());
            for node in (0..nodes).map(NodeId) {
                let folder = tempdir().unwrap();
                let resources = Resources::within(folder.path()).unwrap();
                folders.push(folder);
                let link = Link { node, net: Arc::clone(&net) };
                net.nodes.lock().unwrap().insert(node, Peers::with(link, &resources, &store));
            }
            for peers in net.nodes.lock().unwrap().values() {
                (0..nodes).for_each(|node| peers.on_event(&CompanionEvent::Joined { node: NodeId(node) }));
            }
            Self { net, store, faulty, resource, _folders: folders }
        }

        /// Returns the nodes in the order of the content.
        fn order(&self) -> Vec<NodeId> {
            let nodes = self.net.nodes.lock().unwrap();
            let mut order: Vec<_> = nodes.keys().copied().collect();
            let before =
                |peers: &Peers| peers.order(&self.resource.digest).iter().filter(|other| other.1).count();
            order.sort_by_key(|node| before(&nodes[node]));
            order
        }

        /// Fetches the content on all of these nodes at once, and returns the number of reads of the store.
        fn fetch(&self, nodes: &[NodeId]) -> usize {
            let before = self.faulty.contents_read();
            thread::scope(|scope| {
                for peers in nodes.iter().map(|node| self.net.peers(*node).unwrap()) {
                    scope.spawn(move || {
                        let file = peers.resources.wait_for(&self.store, &self.resource).unwrap();
                        assert_eq!(fs::read_to_string(&file.path).unwrap(), CONTENT);
                    });
                }
            });
            self.faulty.contents_read() - before
        }
    }

    #[test]
    fn nodes_that_need_a_content_at_once_read_the_store_once() {
        for nodes in [2, 5] {
            let case = Case::new(nodes);
            assert_eq!(case.fetch(&case.order()), 1, "{nodes} nodes");
        }
        // Also if the first node does not need it.
        let case = Case::new(4);
        assert_eq!(case.fetch(&case.order()[1..]), 1);
    }

    #[test]
    fn first_node_copies_from_a_later_one_that_has_the_content() {
        let case = Case::new(3);
        let order = case.order();
        let first = case.net.peers(order[0]).unwrap();
        case.net.lose(order[0]);
        assert_eq!(case.fetch(&order[1..]), 1);
        case.net.nodes.lock().unwrap().insert(order[0], first);
        assert_eq!(case.fetch(&order[..1]), 0);
    }

    #[test]
    fn lost_node_that_was_fetching_is_replaced_by_the_next_one() {
        let case = Case::new(4);
        let order = case.order();
        *case.net.stuck.lock().unwrap() = Some((order[0], 0));
        assert_eq!(case.fetch(&order[1..]), 1);
        assert_eq!(case.order(), order[1..], "it was asked twice");
    }

    #[test]
    fn content_that_is_cut_or_wrong_is_fetched_from_others() {
        let case = Case::new(3);
        let order = case.order();
        assert_eq!(case.fetch(&order[..2]), 1);
        *case.net.halves.lock().unwrap() = Some(order[0]);
        assert_eq!(case.fetch(&order[2..]), 0, "the second node has the content");
        let case = Case::new(2);
        let order = case.order();
        assert_eq!(case.fetch(&order[..1]), 1);
        *case.net.wrong.lock().unwrap() = Some(order[0]);
        assert_eq!(case.fetch(&order[1..]), 1, "the store has the content");
    }

    #[test]
    fn unavailable_store_of_one_node_is_not_waited_for() {
        let case = Case::new(2);
        let order = case.order();
        let first = case.net.peers(order[0]).unwrap();
        let mut answers = (0..30_000).map(|_| {
            first.resources.wait(Duration::from_millis(1));
            case.faulty.next_reads(1);
            first.resources.share(&case.store, &case.resource, true).unwrap_err()
        });
        assert_eq!(answers.next(), Some(Answer::Coming), "it starts to read the store");
        assert!(answers.any(|answer| answer == Answer::Lacks));
    }
}
