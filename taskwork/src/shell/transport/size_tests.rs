//! Messages of all sizes: large ones arrive, small ones do not wait for them, and queues are bounded.

use std::time::Duration;

use super::{
    relay::Relay,
    tests::{Heard, TestNode, exchange, message, pair, until},
    *,
};
use crate::wire::{VERSION, codec, hello::Hello};

const MIB: usize = 1 << 20;

fn large(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|place| place.to_le_bytes()[2] ^ place.to_le_bytes()[0]).collect()
}

fn about(grant: u64) -> Subject {
    Subject { job: 1, grant, kind: 0 }
}

/// Creates two nodes; the first reaches the second over a slow connection.
async fn far_apart(limits: TransportLimits, bytes_per_ms: usize) -> (TestNode, TestNode, Relay) {
    let (a, b) = (TestNode::with(1, limits.clone()), TestNode::with(2, limits));
    let way = Relay::of_bytes_per_ms(b.transport.local_address(), bytes_per_ms).await;
    a.peers.set(b.node, PeerAddress { address: way.address, fingerprint: b.fingerprint });
    b.knows(&a);
    (a, b, way)
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_forty_and_sixty_mebibytes_and_the_largest_arrive() {
    let (a, mut b) = pair();
    for bytes in [40 * MIB, 60 * MIB, codec::ENCODED_BYTES_MAX] {
        let payload = large(bytes);
        a.send(b.node, payload.clone());
        // `assert_eq` would print the whole payload.
        assert!(b.arrival().await == message(1, &payload), "{bytes} bytes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_message_over_a_slow_connection_arrives_once_and_is_overtaken_by_small_ones() {
    // The whole message takes several times the limit per piece; a busy machine meets the limit per piece as well.
    let limits = TransportLimits { piece: Duration::from_secs(2), ..TransportLimits::default() };
    let (mut a, mut b, _way) = far_apart(limits, 1_500).await;
    let payload = large(10 * MIB);
    a.transport.send(b.node, Some(about(1)), payload.clone());
    until("it is being sent", || a.transport.under_way(b.node, about(1)) == UnderWay::Moves).await;
    for number in 0..20 {
        // A repeated message is not sent again.
        a.transport.send(b.node, Some(about(1)), payload.clone());
        a.send(b.node, vec![number]);
    }
    for number in 0..20 {
        // Small messages may overtake each other, but do not wait for the large one.
        match b.arrival().await {
            Heard::Message { payload, .. } => assert_eq!(payload.len(), 1, "after {number} small ones"),
            other @ Heard::Unreachable { .. } => panic!("unexpected: {other:?}"),
        }
    }
    assert!(b.arrival().await == message(1, &payload));
    until("it has arrived", || a.transport.under_way(b.node, about(1)) == UnderWay::No).await;
    assert!(b.arrivals.try_recv().is_err(), "it came once");
    assert!(a.arrivals.try_recv().is_err(), "nothing was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_messages_are_bounded_in_bytes_on_both_sides() {
    let limits = TransportLimits {
        message_bytes_max: MIB,
        queued_bytes_max: 3 * MIB,
        arriving_peer_bytes_max: 2 * MIB,
        arriving_large_bytes_max: 2 * MIB,
        ..TransportLimits::default()
    };
    let (mut a, mut b) = (TestNode::with(1, limits.clone()), TestNode::with(2, limits.clone()));
    a.knows(&b);
    b.knows(&a);
    let mut refused = 0;
    for _ in 0..100 {
        a.send(b.node, vec![7; MIB / 2]);
        assert!(a.load(b.node).1 <= limits.queued_bytes_max);
        while let Ok(Arrival::Unreachable { .. }) = a.arrivals.try_recv() {
            refused += 1;
        }
    }
    assert!(refused > 80, "most of it has no room");
    // The node is overloaded: it has room only for these messages, and the others are not read.
    until("the room is taken", || b.transport.hub.rooms.large_left() == 0).await;
    assert!(b.arrivals.len() <= 4);
    // Small messages have separate room.
    a.send(b.node, b"small".to_vec());
    until("it has come", || b.arrivals.len() == 5).await;
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(b.arrivals.recv().await.unwrap());
    }
    let small =
        |arrival: &Arrival| matches!(arrival, Arrival::Message { payload, .. } if payload == b"small");
    assert!(held.iter().any(small));
    assert_eq!(b.transport.hub.rooms.large_left(), 0, "the room is taken until what came was looked at");
    drop(held);
    for _ in 5..=(100 - refused) {
        assert!(matches!(b.arrival().await, Heard::Message { payload, .. } if payload.len() == MIB / 2));
    }
    until("nothing waits", || a.load(b.node) == (0, 0)).await;
    assert_eq!(b.transport.hub.rooms.large_left(), 2 * MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_message_is_abandoned_and_the_next_one_is_sent() {
    let limits = TransportLimits {
        piece: Duration::from_millis(300),
        arriving_peer_bytes_max: 2 * MIB,
        arriving_large_bytes_max: 2 * MIB,
        message_bytes_max: 2 * MIB,
        ..TransportLimits::default()
    };
    let (mut a, mut b) = (TestNode::with(1, limits.clone()), TestNode::with(2, limits));
    a.knows(&b);
    b.knows(&a);
    a.send(b.node, vec![1; 2 * MIB]);
    until("the room is taken", || b.arrivals.len() == 1).await;
    // There is no room for this message until the first one was handled, so it makes no progress.
    a.transport.send(b.node, Some(about(2)), vec![2; 2 * MIB]);
    assert_eq!(a.arrival().await, Heard::Unreachable { to: b.node });
    assert_eq!(a.transport.under_way(b.node, about(2)), UnderWay::No);
    assert!(matches!(b.arrival().await, Heard::Message { payload, .. } if payload[0] == 1));
    a.transport.send(b.node, Some(about(2)), vec![3; 2 * MIB]);
    // An incomplete message is never delivered.
    assert!(matches!(b.arrival().await, Heard::Message { payload, .. } if payload == vec![3; 2 * MIB]));
}

#[tokio::test(flavor = "multi_thread")]
async fn message_with_a_wrong_length_is_rejected() {
    let (a, mut b) = pair();
    let connect = async || {
        let hub = &a.transport.hub;
        let config = verify::client_config(&hub.identity, &a.peers, b.fingerprint, &hub.limits).unwrap();
        let connection =
            hub.endpoint.connect_with(config, b.address().address, "node").unwrap().await.unwrap();
        exchange(&connection, &codec::encode(&Hello { version: VERSION, node: a.node }).unwrap()).await;
        connection
    };
    let send_raw = async |connection: &Connection, announced: u32, bytes: usize| {
        let mut stream = connection.open_uni().await.unwrap();
        stream.write_all(&announced.to_le_bytes()).await.unwrap();
        // The message may be refused before it is completely written.
        let _ = stream.write_all(&vec![7; bytes]).await;
        let _ = stream.finish();
    };
    for (announced, bytes) in [(10, 20), (u32::MAX, 0), ((64 << 20) + 1, 100)] {
        let connection = connect().await;
        send_raw(&connection, announced, bytes).await;
        time::timeout(tests::SOON, connection.closed()).await.expect("it is closed in time");
    }
    // A message that ends too early may have been cut off: only this message is lost.
    let connection = connect().await;
    send_raw(&connection, 20, 10).await;
    send_raw(&connection, 3, 3).await;
    assert_eq!(b.arrival().await, message(1, &[7; 3]));
    assert!(b.arrivals.try_recv().is_err());
}
