//! The resources of a node for its peers are bounded by the number of members, regardless of strangers.

use std::time::Duration;

use super::{
    relay::Relay,
    tests::{Heard, SOON, TestNode, exchange, message, pair, until},
    *,
};
use crate::wire::{VERSION, codec, hello::Hello};

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_departed_peers_leave_no_state() {
    let (mut node, stays) = pair();
    let mut stays = stays;
    for number in 100..400 {
        let mut guest = TestNode::new(number);
        node.knows(&guest);
        guest.knows(&node);
        node.send(guest.node, b"welcome".to_vec());
        assert_eq!(guest.arrival().await, message(1, b"welcome"));
        guest.send(node.node, b"thanks".to_vec());
        assert_eq!(node.arrival().await, message(number, b"thanks"));
        node.peers.remove(guest.node);
    }
    node.send(stays.node, b"still there?".to_vec());
    assert_eq!(stays.arrival().await, message(1, b"still there?"));
    let hub = &node.transport.hub;
    until("no queue is left", || lock(&hub.queues).len() == 1).await;
    until("no connection is left", || lock(&hub.connections).len() == 1).await;
    until("the endpoint has forgotten them", || hub.endpoint.open_connections() == 1).await;
    until("no link is left", || {
        let mut links = lock(&node.transport.links);
        while links.try_join_next().is_some() {}
        links.len() == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_queued_for_a_departed_peer_are_reported_lost() {
    let mut a = TestNode::new(1);
    let silent = std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
    let fingerprint = Identity::generate(NodeId(2)).unwrap().fingerprint();
    a.peers.set(NodeId(2), PeerAddress { address: silent.local_addr().unwrap(), fingerprint });
    for number in 0..10 {
        a.send(NodeId(2), vec![number]);
    }
    a.peers.remove(NodeId(2));
    assert_eq!(a.arrival().await, Heard::Unreachable { to: NodeId(2) });
    until("nothing waits", || lock(&a.transport.hub.queues).is_empty()).await;
    a.send(NodeId(2), b"anybody?".to_vec());
    assert_eq!(a.arrival().await, Heard::Unreachable { to: NodeId(2) });
    assert!(lock(&a.transport.hub.queues).is_empty(), "nothing is kept for who is no member");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_link_is_removed_and_recreated_on_demand() {
    let limits = TransportLimits { link_idle: Duration::from_millis(20), ..TransportLimits::default() };
    let (a, mut b) = (TestNode::with(1, limits), TestNode::new(2));
    a.knows(&b);
    b.knows(&a);
    for number in 0..5 {
        a.send(b.node, vec![number]);
        assert_eq!(b.arrival().await, message(1, &[number]));
        until("the link ends", || lock(&a.transport.hub.queues).is_empty()).await;
    }
    assert_eq!(a.transport.hub.endpoint.open_connections(), 1, "the connection stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn member_connections_are_bounded_and_the_newest_is_read() {
    let (a, mut b) = pair();
    let hub = &a.transport.hub;
    let mut connections = Vec::new();
    for _ in 0..12 {
        let config = verify::client_config(&hub.identity, &a.peers, b.fingerprint, &hub.limits).unwrap();
        let connection =
            hub.endpoint.connect_with(config, b.address().address, "node").unwrap().await.unwrap();
        exchange(&connection, &codec::encode(&Hello { version: VERSION, node: a.node }).unwrap()).await;
        connections.push(connection);
    }
    let open = || connections.iter().filter(|connection| connection.close_reason().is_none()).count();
    until("the oldest are closed", || open() == hub.limits.connections_max).await;
    until("they are forgotten", || b.transport.hub.endpoint.open_connections() == hub.limits.connections_max)
        .await;
    let mut stream = connections[11].open_uni().await.unwrap();
    stream.write_all(&2_u32.to_le_bytes()).await.unwrap();
    stream.write_all(b"hi").await.unwrap();
    stream.finish().unwrap();
    assert_eq!(b.arrival().await, message(1, b"hi"));
}

/// Classifies QUIC's first datagrams by their first byte.
fn is_initial(datagram: &[u8]) -> bool {
    datagram[0] & 0xf0 == 0xc0
}

fn is_retry(datagram: &[u8]) -> bool {
    datagram[0] & 0xf0 == 0xf0
}

/// Starts many connections that make no progress: of the node's answers, at most the retry is delivered.
async fn flood(node: &TestNode, prove: bool) -> (Relay, Endpoint, Vec<tokio::task::JoinHandle<()>>) {
    let way = Relay::that_lets_through(node.transport.local_address(), is_initial, move |datagram| {
        prove && is_retry(datagram)
    })
    .await;
    let stranger = TestNode::new(666);
    let endpoint = Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let hub = &stranger.transport.hub;
    let mut dialled = Vec::new();
    for _ in 0..300 {
        let config =
            verify::client_config(&hub.identity, &stranger.peers, node.fingerprint, &hub.limits).unwrap();
        let connecting = endpoint.connect_with(config, way.address, "node").unwrap();
        dialled.push(tokio::spawn(async move { drop(connecting.await) }));
    }
    (way, endpoint, dialled)
}

#[tokio::test(flavor = "multi_thread")]
async fn handshake_flood_is_bounded_and_does_not_exclude_members() {
    for prove in [false, true] {
        let limits = TransportLimits {
            handshakes_trusted_max: 4,
            handshakes_max: 8,
            handshake_grace: Duration::from_secs(60),
            refusal_log_interval: Duration::from_secs(60),
            dial: Duration::from_secs(10),
            ..TransportLimits::default()
        };
        let (a, mut b) = (TestNode::new(1), TestNode::with(2, limits.clone()));
        a.knows(&b);
        b.knows(&a);
        let (_way, _endpoint, dialled) = flood(&b, prove).await;
        let hub = Arc::clone(&b.transport.hub);
        let open = || hub.endpoint.open_connections();
        let full = if prove { limits.handshakes_max } else { limits.handshakes_trusted_max };
        until("the flood has come", || open() >= full).await;
        a.send(b.node, b"let me in".to_vec());
        let (mut most, mut came) = (0, None);
        let watching = async {
            while came.is_none() {
                most = most.max(open());
                came = time::timeout(Duration::from_millis(1), b.arrivals.recv()).await.ok().flatten();
            }
        };
        time::timeout(SOON, watching).await.expect("a member comes in during the flood");
        assert!(matches!(came, Some(Arrival::Message { from: NodeId(1), .. })));
        assert!(most <= full + 1, "{most} connections at a time, prove: {prove}");
        let (lines, _) = hub.refusals.logged();
        assert!(lines <= 1, "{lines} lines");
        dialled.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_handshakes_make_room_after_their_grace_period() {
    let limits = TransportLimits {
        handshakes_trusted_max: 2,
        handshakes_max: 4,
        handshake_grace: Duration::from_millis(50),
        dial: Duration::from_secs(60),
        ..TransportLimits::default()
    };
    let (a, mut b) = (TestNode::new(1), TestNode::with(2, limits));
    b.knows(&a);
    let (_way, _endpoint, dialled) = flood(&b, true).await;
    let hub = Arc::clone(&b.transport.hub);
    until("the flood has come", || hub.endpoint.open_connections() >= 4).await;
    dialled.iter().for_each(tokio::task::JoinHandle::abort);
    // The connection comes from another address than the one on which the member listens.
    let way = Relay::of_bytes_per_ms(b.transport.local_address(), usize::MAX).await;
    a.peers.set(b.node, PeerAddress { address: way.address, fingerprint: b.fingerprint });
    a.send(b.node, b"let me in".to_vec());
    assert_eq!(b.arrival().await, message(1, b"let me in"));
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_refusals_are_logged_in_two_lines() {
    let refusals = Refusals::default();
    let remote = SocketAddr::from(([127, 0, 0, 1], 1));
    for _ in 0..1_000 {
        refusals.note(NodeId(1), remote, "a stranger", Duration::from_secs(60));
    }
    assert_eq!(refusals.logged(), (1, 999));
    refusals.note(NodeId(1), remote, "a stranger", Duration::ZERO);
    assert_eq!(refusals.logged(), (2, 0), "and the line says how many there were");
}
