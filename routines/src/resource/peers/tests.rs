//! Nodes in one process, without a network, that copy a content.

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
    /// Whether the disks are full, and the number of copies since then.
    full: Mutex<Option<u32>>,
}

#[derive(Debug)]
struct Link {
    node: NodeId,
    net: Arc<Net>,
}

/// An offer until this is dropped.
#[derive(Debug)]
struct Offered {
    net: Arc<Net>,
    key: (NodeId, ObjectName),
}

impl Drop for Offered {
    fn drop(&mut self) {
        self.net.offers.lock().unwrap().remove(&self.key);
    }
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
        let requests = {
            let mut stuck = self.net.stuck.lock().unwrap();
            let requests = stuck.as_mut().filter(|(node, _)| *node == to).map(|(_, requests)| requests);
            requests.map(|requests| {
                *requests += 1;
                *requests
            })
        };
        match (requests, self.net.peers(to)) {
            (Some(2), _) => self.net.lose(to),
            (Some(requests), Some(stuck)) => {
                let config = bincode::config::standard();
                let Ok((Message::Want { reference, .. }, _)) =
                    bincode::serde::decode_from_slice(&bytes, config)
                else {
                    return;
                };
                let digest = Resource::parse(&reference).unwrap().digest;
                stuck.send(self.node, &Message::Answer(digest, Answer::Coming(requests.into())));
            }
            (None, Some(peers)) => {
                peers.on_event(&CompanionEvent::Message { from: self.node, bytes });
            }
            (_, None) => {}
        }
    }

    fn offer(&self, name: ObjectName, file: File) -> Box<dyn Any + Send> {
        let key = (self.node, name);
        self.net.offers.lock().unwrap().insert(key, file);
        Box::new(Offered { net: Arc::clone(&self.net), key })
    }

    fn fetch(&self, name: ObjectName, mut file: File, from: NodeId) -> io::Result<()> {
        let mut content = Vec::new();
        let mut offers = self.net.offers.lock().unwrap();
        let offered = offers.get_mut(&(from, name)).ok_or_else(|| io::Error::other("it is not offered"))?;
        offered.rewind().unwrap();
        offered.read_to_end(&mut content).unwrap();
        if *self.net.halves.lock().unwrap() == Some(from) {
            file.write_all(&content[..content.len() / 2]).unwrap();
            return Err(io::Error::other("the connection was lost"));
        }
        if let Some(copies) = &mut *self.net.full.lock().unwrap() {
            *copies += 1;
            return Err(ErrorKind::StorageFull.into());
        }
        if *self.net.wrong.lock().unwrap() == Some(from) {
            content.reverse();
        }
        file.write_all(&content).unwrap();
        let is_named = *blake3::hash(&content).as_bytes() == name.hash();
        is_named.then_some(()).ok_or_else(|| io::Error::other("another content"))
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

/// The size of the files on a node, in bytes: one content.
const FILES_BYTES_MAX: u64 = 10;

impl Case {
    fn new(nodes: u64) -> Self {
        let faulty = Arc::<Faulty>::default();
        let objects = StoredObjects::new(Arc::clone(&faulty) as _).unwrap();
        let store = Store::new(objects).unwrap();
        let resource = put(&store, "table", CONTENT);
        let (net, mut folders) = (Arc::<Net>::default(), Vec::new());
        for node in (0..nodes).map(NodeId) {
            let folder = tempdir().unwrap();
            let resources = Resources::bounded(folder.path(), FILES_BYTES_MAX).unwrap();
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

    /// Fetches the content on several nodes at once, and returns the number of reads of the store.
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
fn full_disk_ends_the_fetch_with_the_first_copy() {
    let case = Case::new(3);
    let order = case.order();
    assert_eq!(case.fetch(&order[..2]), 1);
    *case.net.full.lock().unwrap() = Some(0);
    let last = case.net.peers(order[2]).unwrap();
    let reason = last.resources.wait_for(&case.store, &case.resource).unwrap_err();
    assert!(reason.contains("the disk of the node is full"), "{reason}");
    assert_eq!(*case.net.full.lock().unwrap(), Some(1));
}

#[test]
fn offer_of_a_removed_file_ends_with_the_file() {
    let case = Case::new(2);
    let order = case.order();
    case.fetch(&order);
    let is_offered = || case.net.offers.lock().unwrap().keys().any(|(node, _)| *node == order[0]);
    assert!(is_offered());
    let other = put(&case.store, "other", "2 content");
    let first = case.net.peers(order[0]).unwrap();
    first.resources.wait_for(&case.store, &other).unwrap();
    assert!((0..30_000).any(|_| {
        first.resources.wait(Duration::from_millis(1));
        !is_offered()
    }));
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
    assert_eq!(answers.next(), Some(Answer::Coming(0)), "it starts to read the store");
    assert!(answers.any(|answer| answer == Answer::Lacks));
}

#[test]
fn request_ends_when_the_node_leaves_the_job() {
    let case = Case::new(2);
    let order = case.order();
    let other = case.net.peers(order[1]).unwrap();
    *case.net.stuck.lock().unwrap() = Some((order[0], 1_000));
    thread::scope(|scope| {
        let fetching = scope.spawn(|| case.fetch(&order[1..]));
        let is_asked = || case.net.stuck.lock().unwrap().is_some_and(|(_, requests)| requests > 1_000);
        assert!((0..30_000).any(|_| {
            other.resources.wait(Duration::from_millis(1));
            is_asked()
        }));
        other.leave();
        assert_eq!(fetching.join().unwrap(), 1);
    });
}

#[test]
fn node_that_fetches_without_progress_is_skipped() {
    let start = Instant::now();
    let mut patience = Patience::new(start);
    let mut skipped_after = |bytes: fn(u64) -> u64| {
        let second = (1..10_000).find(|second| {
            let now = start + Duration::from_secs(*second);
            patience.on_coming(bytes(*second), now);
            patience.is_over(now)
        });
        patience = Patience::new(start);
        Duration::from_secs(second.unwrap())
    };
    assert_eq!(skipped_after(|_| 0), STALL);
    assert_eq!(skipped_after(|second| second.min(100)), Duration::from_secs(100) + STALL);
    assert_eq!(skipped_after(|second| second), COMING_MAX);
    assert!(Patience::new(start).is_over(start + SILENCE), "without an answer");
}

#[test]
fn node_that_waits_for_another_one_reports_the_progress_of_that() {
    let case = Case::new(2);
    let order = case.order();
    let other = case.net.peers(order[1]).unwrap();
    // It counts its requests as its progress.
    *case.net.stuck.lock().unwrap() = Some((order[0], 1_000));
    let mut answers = (0..30_000).map(|_| {
        other.resources.wait(Duration::from_millis(1));
        other.resources.share(&case.store, &case.resource, true).unwrap_err()
    });
    assert!(answers.any(|answer| matches!(answer, Answer::Coming(1_001..))));
    other.leave();
}

#[test]
fn each_node_is_asked_first_by_few_others() {
    let case = Case::new(30);
    let order = case.order();
    let asked = |node: &NodeId| case.net.peers(*node).unwrap().order(&case.resource.digest);
    let mut children = HashMap::new();
    for (place, node) in order.iter().enumerate() {
        let (others, before) = (asked(node), &order[..place]);
        assert_eq!(others.len(), order.len() - 1);
        assert!(others.iter().all(|(other, is_before)| before.contains(other) == *is_before), "{place}");
        if place > 0 {
            *children.entry(others[0].0).or_insert(0) += 1;
            assert!(others[..place].iter().all(|other| other.1), "the nodes before it are the first ones");
        }
    }
    assert!(children.values().all(|count| *count <= CHILDREN_MAX), "{children:?}");
    assert_eq!(children.values().sum::<usize>(), order.len() - 1);
    assert_eq!(case.fetch(&order[20..]), 1, "the store is read once");
}
