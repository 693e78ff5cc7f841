//! Nodes on the loopback interface: members, strangers and impostors.

use std::{net::Ipv4Addr, time::Duration};

use super::*;
use crate::wire::{VERSION, codec, hello::Hello};

pub(super) const SOON: Duration = Duration::from_secs(20);

pub(super) struct TestNode {
    pub(super) node: NodeId,
    pub(super) fingerprint: Fingerprint,
    pub(super) peers: Arc<Peers>,
    pub(super) transport: Transport,
    pub(super) arrivals: mpsc::Receiver<Arrival>,
}

/// An arrival without its room.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Message { from: NodeId, payload: Vec<u8> },
    Unreachable { to: NodeId },
}

impl TestNode {
    pub(super) fn new(number: u64) -> Self {
        Self::with(number, TransportLimits::default())
    }

    pub(super) fn with(number: u64, limits: TransportLimits) -> Self {
        let (node, peers) = (NodeId(number), Arc::new(Peers::default()));
        let identity = Identity::generate(node).unwrap();
        let fingerprint = identity.fingerprint();
        let (sender, arrivals) = mpsc::channel(64);
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let transport = Transport::bind(node, identity, listen, Arc::clone(&peers), sender, limits).unwrap();
        Self { node, fingerprint, peers, transport, arrivals }
    }

    pub(super) fn knows(&self, other: &Self) {
        self.peers.set(other.node, other.address());
    }

    pub(super) fn address(&self) -> PeerAddress {
        PeerAddress { address: self.transport.local_address(), fingerprint: self.fingerprint }
    }

    pub(super) fn send(&self, to: NodeId, payload: Vec<u8>) {
        self.transport.send(to, None, payload);
    }

    pub(super) async fn arrival(&mut self) -> Heard {
        let arrival = time::timeout(SOON, self.arrivals.recv()).await.expect("something arrives in time");
        match arrival.expect("it is open") {
            Arrival::Message { from, payload, .. } => Heard::Message { from, payload },
            Arrival::Unreachable { to } => Heard::Unreachable { to },
        }
    }

    /// Returns the load of a peer's queue: small messages, and bytes of large ones.
    pub(super) fn load(&self, peer: NodeId) -> (usize, usize) {
        lock(&self.transport.hub.queues).get(&peer).map_or((0, 0), Queue::load)
    }
}

pub(super) fn pair() -> (TestNode, TestNode) {
    let (a, b) = (TestNode::new(1), TestNode::new(2));
    a.knows(&b);
    b.knows(&a);
    (a, b)
}

pub(super) fn message(from: u64, payload: &[u8]) -> Heard {
    Heard::Message { from: NodeId(from), payload: payload.to_vec() }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_go_both_ways_over_one_connection() {
    let (mut a, mut b) = pair();
    a.send(b.node, b"hungry".to_vec());
    assert_eq!(b.arrival().await, message(1, b"hungry"));
    b.send(a.node, b"here".to_vec());
    assert_eq!(a.arrival().await, message(2, b"here"));
    assert_eq!(a.transport.hub.endpoint.open_connections(), 1);
}

/// Adds each wanted member as known, as a seat does after reading its record.
async fn read_what_is_wanted(test_node: &TestNode, others: [&TestNode; 1]) -> usize {
    let wanted = time::timeout(SOON, test_node.peers.wanted()).await.expect("a member is needed");
    for other in others.iter().filter(|other| wanted.contains(&other.node)) {
        test_node.knows(other);
    }
    wanted.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn named_members_are_read_when_they_dial_or_are_dialled() {
    let (a, mut b) = (TestNode::new(1), TestNode::new(2));
    a.peers.name(b.node);
    b.peers.name(a.node);
    let large = vec![7; 100_000];
    a.send(b.node, large.clone());
    assert_eq!(read_what_is_wanted(&a, [&b]).await, 1);
    assert_eq!(read_what_is_wanted(&b, [&a]).await, 1);
    assert_eq!(b.arrival().await, message(1, &large), "more than a narrow connection takes");
}

#[tokio::test(flavor = "multi_thread")]
async fn stranger_with_the_id_of_an_unread_member_is_refused() {
    let (member, mut stranger, mut b) = (TestNode::new(1), TestNode::new(1), TestNode::new(2));
    b.peers.name(member.node);
    stranger.knows(&b);
    stranger.send(b.node, b"a task".to_vec());
    assert_eq!(read_what_is_wanted(&b, [&member]).await, 1);
    assert_eq!(stranger.arrival().await, Heard::Unreachable { to: b.node });
    member.knows(&b);
    member.send(b.node, b"hungry".to_vec());
    assert_eq!(b.arrival().await, message(1, b"hungry"), "nothing of the stranger has come before");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_node_is_refused_while_other_members_are_unread() {
    let (mut stranger, b) = (TestNode::new(1), TestNode::new(2));
    b.peers.name(NodeId(3));
    stranger.knows(&b);
    stranger.send(b.node, b"a task".to_vec());
    assert_eq!(stranger.arrival().await, Heard::Unreachable { to: b.node });
}

#[tokio::test(flavor = "multi_thread")]
async fn many_messages_all_arrive() {
    let (a, mut b) = pair();
    let sending = async {
        for number in 0..1_000_u32 {
            // A full queue drops messages, so a sender that needs every one waits for room.
            while a.load(NodeId(2)).0 >= a.transport.hub.limits.queued_messages_max {
                tokio::task::yield_now().await;
            }
            a.send(NodeId(2), number.to_le_bytes().to_vec());
        }
    };
    let receiving = async {
        let mut seen = std::collections::BTreeSet::new();
        while seen.len() < 1_000 {
            match time::timeout(SOON, b.arrivals.recv()).await.expect("it arrives in time") {
                Some(Arrival::Message { payload, .. }) => {
                    assert!(seen.insert(payload), "a message came twice");
                }
                other => panic!("unexpected: {other:?}"),
            }
        }
    };
    tokio::join!(sending, receiving);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_message_arrives_complete_and_an_oversized_one_is_refused() {
    let (mut a, mut b) = pair();
    let large: Vec<u8> = (0..8 << 20).map(|byte: u32| byte.to_le_bytes()[1]).collect();
    a.send(b.node, large.clone());
    assert_eq!(b.arrival().await, message(1, &large));
    a.send(b.node, vec![0; (64 << 20) + 1]);
    assert_eq!(a.arrival().await, Heard::Unreachable { to: b.node });
}

#[tokio::test(flavor = "multi_thread")]
async fn stranger_is_refused() {
    let (stranger, mut member) = (TestNode::new(1), TestNode::new(2));
    stranger.knows(&member);
    let mut stranger = stranger;
    stranger.send(member.node, b"give me tasks".to_vec());
    assert_eq!(stranger.arrival().await, Heard::Unreachable { to: member.node });
    assert!(member.arrivals.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn impostor_at_a_members_address_receives_nothing() {
    let (mut a, mut impostor) = (TestNode::new(1), TestNode::new(2));
    impostor.knows(&a);
    let real = Identity::generate(NodeId(2)).unwrap().fingerprint();
    a.peers.set(NodeId(2), PeerAddress { fingerprint: real, ..impostor.address() });
    a.send(NodeId(2), b"a task".to_vec());
    assert_eq!(a.arrival().await, Heard::Unreachable { to: NodeId(2) });
    assert!(impostor.arrivals.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn member_with_the_id_of_another_member_is_refused() {
    let (liar, mut b) = (TestNode::new(1), TestNode::new(2));
    liar.knows(&b);
    // Node 1 is a member, but claims to be node 3, which is a member too.
    b.knows(&liar);
    let third = TestNode::new(3);
    b.knows(&third);
    let config = verify::client_config(
        &liar.transport.hub.identity,
        &liar.peers,
        b.fingerprint,
        &TransportLimits::default(),
    );
    let dialled =
        liar.transport.hub.endpoint.connect_with(config.unwrap(), b.address().address, "node").unwrap();
    let connection = time::timeout(SOON, dialled).await.unwrap().unwrap();
    let answer =
        exchange(&connection, &codec::encode(&Hello { version: VERSION, node: NodeId(3) }).unwrap()).await;
    assert_eq!(
        codec::decode::<crate::wire::hello::Welcome>(&answer).unwrap(),
        crate::wire::hello::Welcome::Stranger
    );
    assert!(b.arrivals.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn other_versions_and_garbage_are_refused() {
    let (a, mut b) = pair();
    let connect = || async {
        let config = verify::client_config(
            &a.transport.hub.identity,
            &a.peers,
            b.fingerprint,
            &TransportLimits::default(),
        );
        let dialled =
            a.transport.hub.endpoint.connect_with(config.unwrap(), b.address().address, "node").unwrap();
        time::timeout(SOON, dialled).await.unwrap().unwrap()
    };
    let old = codec::encode(&Hello { version: VERSION + 1, node: a.node }).unwrap();
    let answer = exchange(&connect().await, &old).await;
    let welcome = codec::decode::<crate::wire::hello::Welcome>(&answer).unwrap();
    assert_eq!(welcome, crate::wire::hello::Welcome::Version(VERSION));
    for garbage in [vec![], vec![0xff; 10], vec![0; 100_000]] {
        assert!(exchange(&connect().await, &garbage).await.is_empty());
    }
    assert!(b.arrivals.try_recv().is_err());
    // The node is unaffected.
    a.send(b.node, b"still there?".to_vec());
    assert_eq!(b.arrival().await, message(1, b"still there?"));
}

/// Waits until a condition holds, with a time limit.
pub(super) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            time::sleep(Duration::from_millis(1)).await;
        }
    };
    time::timeout(SOON, waiting).await.unwrap_or_else(|_| panic!("timeout: {what}"));
}

/// Sends a first message, and returns the answer; empty if there is none.
pub(super) async fn exchange(connection: &Connection, words: &[u8]) -> Vec<u8> {
    let talking = async {
        let (mut question, mut answer) = connection.open_bi().await.ok()?;
        question.write_all(words).await.ok()?;
        question.finish().ok()?;
        answer.read_to_end(1024).await.ok()
    };
    time::timeout(SOON, talking).await.expect("an end in time").unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn departed_member_is_refused_until_it_joins_again() {
    let (mut a, mut b) = pair();
    a.send(b.node, b"one".to_vec());
    assert_eq!(b.arrival().await, message(1, b"one"));
    b.peers.remove(a.node);
    // Its connection is closed; a new one is refused.
    let connection = a.transport.hub.connection(b.node);
    if let Some(connection) = connection {
        time::timeout(SOON, connection.closed()).await.expect("it is closed in time");
    }
    a.send(b.node, b"two".to_vec());
    assert_eq!(a.arrival().await, Heard::Unreachable { to: b.node });
    assert!(b.arrivals.try_recv().is_err());
    b.knows(&a);
    a.send(b.node, b"three".to_vec());
    assert_eq!(b.arrival().await, message(1, b"three"));
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_address_is_unreachable_within_the_time_limit() {
    let limits = TransportLimits { dial: Duration::from_millis(200), ..TransportLimits::default() };
    let mut a = TestNode::with(1, limits);
    let silent = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let fingerprint = Identity::generate(NodeId(2)).unwrap().fingerprint();
    a.peers.set(NodeId(2), PeerAddress { address: silent.local_addr().unwrap(), fingerprint });
    a.send(NodeId(2), b"anybody?".to_vec());
    assert_eq!(a.arrival().await, Heard::Unreachable { to: NodeId(2) });
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_messages_are_delivered_before_the_transport_closes() {
    // On a busy machine, connecting alone may take longer than a node waits when it stops.
    let limits = TransportLimits { dial: SOON, close: SOON, ..TransportLimits::default() };
    let (a, mut b) = (TestNode::with(1, limits), TestNode::new(2));
    a.knows(&b);
    b.knows(&a);
    for number in 0..50_u8 {
        a.send(b.node, vec![number]);
    }
    let closing = tokio::spawn(a.transport.close());
    for _ in 0..50 {
        assert!(matches!(b.arrival().await, Heard::Message { .. }));
    }
    time::timeout(SOON, closing).await.expect("an end in time").unwrap();
}

/// Acknowledged messages are not sent again, so they must be delivered, however slow their recipient is.
#[tokio::test(flavor = "multi_thread")]
async fn received_messages_are_delivered_after_their_connection_has_ended() {
    let limits = TransportLimits { dial: SOON, close: SOON, streams_max: 1, ..TransportLimits::default() };
    let (a, mut b) = (TestNode::with(1, limits.clone()), TestNode::with(2, limits));
    a.knows(&b);
    b.knows(&a);
    // As many messages as fit into the channel, one that waits for a place in it, and one whose stream is not yet
    // accepted.
    let count = b.transport.hub.arrivals.max_capacity() + 2;
    for _ in 0..count {
        a.send(b.node, b"acknowledged".to_vec());
    }
    let connected = async {
        while b.transport.hub.connection(a.node).is_none() {
            tokio::task::yield_now().await;
        }
        b.transport.hub.connection(a.node)
    };
    let connection = time::timeout(SOON, connected).await.expect("a connection in time").expect("it is open");
    time::timeout(SOON, a.transport.close()).await.expect("an end in time");
    time::timeout(SOON, connection.closed()).await.expect("its end is noticed in time");
    for _ in 0..count {
        assert_eq!(b.arrival().await, message(1, b"acknowledged"));
    }
}
