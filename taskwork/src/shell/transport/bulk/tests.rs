//! Objects of all sizes on the loopback interface, owners that die or leave, and many concurrent fetchers.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time,
};

use super::{
    super::{
        PeerAddress, TransportLimits, lock,
        relay::Relay,
        tests::{Heard, SOON, TestNode, exchange, pair, until},
    },
    *,
};
use crate::wire::{
    bulk::{Ask, ObjectName},
    codec,
};

pub(super) const MIB: usize = 1 << 20;

/// Returns a content without repetitions.
pub(super) fn content(bytes: usize) -> Bytes {
    let numbers =
        (0..bytes.div_ceil(8) as u64).flat_map(|k| k.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    numbers.take(bytes).collect::<Vec<u8>>().into()
}

pub(super) fn bulk(test_node: &TestNode) -> Bulk {
    test_node.transport.bulk()
}

/// Creates nodes that know each other.
pub(super) fn test_nodes<const N: usize>(limits: &TransportLimits) -> [TestNode; N] {
    let test_nodes = std::array::from_fn(|k| TestNode::with(k as u64 + 1, limits.clone()));
    for one in &test_nodes {
        for other in test_nodes.iter().filter(|other| other.node != one.node) {
            one.knows(other);
        }
    }
    test_nodes
}

async fn fetch_from(to: &TestNode, name: ObjectName, owners: &[&TestNode]) -> Result<Vec<u8>, FetchError> {
    let owners: Vec<NodeId> = owners.iter().map(|owner| owner.node).collect();
    let bulk = bulk(to);
    let fetching = bulk.fetch(name, Vec::new(), || owners.clone(), Duration::ZERO);
    time::timeout(SOON, fetching).await.expect("an end in time")
}

/// A sink that accepts a limited number of bytes, and reports the number received.
struct Slow {
    got: Vec<u8>,
    allowed: Arc<Semaphore>,
    reports_in: mpsc::UnboundedSender<usize>,
}

impl Sink for Slow {
    async fn take(&mut self, bytes: Bytes) -> io::Result<()> {
        let allowed = self.allowed.acquire_many(u32::try_from(bytes.len()).unwrap()).await.unwrap();
        allowed.forget();
        self.got.extend_from_slice(&bytes);
        let _ = self.reports_in.send(self.got.len());
        Ok(())
    }

    async fn clear(&mut self) -> io::Result<()> {
        self.got.clear();
        Ok(())
    }
}

/// Returns a sink that accepts this number of bytes, its limit, and the receiver of its reports.
fn slow(bytes: usize) -> (Slow, Arc<Semaphore>, mpsc::UnboundedReceiver<usize>) {
    let ((reports_in, reports), allowed) = (mpsc::unbounded_channel(), Arc::new(Semaphore::new(bytes)));
    (Slow { got: Vec::new(), allowed: Arc::clone(&allowed), reports_in }, allowed, reports)
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_all_sizes_arrive_unchanged() {
    let (a, b) = pair();
    for bytes in [0, 1, 64 << 10, (64 << 10) + 1, 256 << 10, MIB, 10 * MIB + 7] {
        let content = content(bytes);
        let object = Object::new([content.clone()]);
        let _offer = bulk(&a).offer(object.clone());
        let fetched = fetch_from(&b, object.name(), &[&a]).await.unwrap();
        // `assert_eq` would print the whole content.
        assert!(fetched == content, "{bytes} bytes");
    }
    assert_eq!(a.transport.hub.endpoint.open_connections(), 1);
    until("nothing is served any more", || bulk(&a).figures().served == 0).await;
    let exchanged = [bulk(&a).figures().sent_bytes, bulk(&b).figures().received_bytes];
    assert_eq!(exchanged[0], exchanged[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn object_without_a_current_offer_is_unknown() {
    let (a, b) = pair();
    let object = Object::new([content(MIB)]);
    let offer = bulk(&a).offer(object.clone());
    let another = ObjectName { bytes: 7, ..object.name() };
    assert!(matches!(fetch_from(&b, another, &[&a]).await, Err(FetchError::Unknown)));
    drop(offer);
    assert!(matches!(fetch_from(&b, object.name(), &[&a]).await, Err(FetchError::Unknown)));
    assert!(matches!(fetch_from(&b, object.name(), &[]).await, Err(FetchError::NoOwner)));
    let stranger = TestNode::new(9);
    assert!(matches!(fetch_from(&b, object.name(), &[&stranger]).await, Err(FetchError::CutOff(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_content_is_rejected_and_the_next_owner_is_asked() {
    let [liar, owner, b] = test_nodes(&TransportLimits::default());
    let (right, wrong) = (content(MIB), content(MIB + 1).slice(1..));
    let object = Object::new([right.clone()]);
    let _lie = bulk(&liar).offer(Object::named(object.name(), wrong));
    assert!(matches!(fetch_from(&b, object.name(), &[&liar]).await, Err(FetchError::Garbled)));
    let _offer = bulk(&owner).offer(object.clone());
    assert!(fetch_from(&b, object.name(), &[&liar, &owner]).await.unwrap() == right);
    // Shorter or longer than the name specifies.
    for bytes in [MIB - 1, MIB + 1] {
        let name = Object::new([content(bytes)]).name();
        let name = ObjectName { bytes: MIB as u64, ..name };
        let _lie = bulk(&liar).offer(Object::named(name, content(bytes)));
        assert!(matches!(fetch_from(&b, name, &[&liar]).await, Err(FetchError::CutOff(_))), "{bytes} bytes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fetch_continues_at_the_next_owner_when_an_owner_disappears() {
    enum End {
        Dies,
        Leaves,
        IsNoMember,
    }
    for end in [End::Dies, End::Leaves, End::IsNoMember] {
        let [first, second, b] = test_nodes(&TransportLimits::default());
        let content = content(32 * MIB);
        let object = Object::new([content.clone()]);
        let _offers = [bulk(&first).offer(object.clone()), bulk(&second).offer(object.clone())];
        let (sink, allowed, mut reports) = slow(4 * MIB);
        let (name, owners) = (object.name(), vec![first.node, second.node]);
        let fetcher = bulk(&b);
        let fetching =
            tokio::spawn(async move { fetcher.fetch(name, sink, || owners.clone(), Duration::ZERO).await });
        while reports.recv().await.unwrap() < 4 * MIB {}
        match end {
            End::Dies => first.transport.hub.endpoint.close(9_u32.into(), b"dead"),
            End::Leaves => first.transport.close().await,
            End::IsNoMember => b.peers.remove(first.node),
        }
        allowed.add_permits(28 * MIB);
        let sink = time::timeout(SOON, fetching).await.expect("an end in time").unwrap().unwrap();
        assert!(sink.got == content);
        let sent = bulk(&second).figures().sent_bytes;
        assert!(sent <= 28 * MIB as u64, "what had come was not fetched again, but {sent} bytes");
        assert!(sent > 20 * MIB as u64, "the first owner sent less than QUIC's windows: {sent} bytes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fetch_continues_at_the_next_owner_when_an_owner_stalls() {
    let limits = TransportLimits { bulk_progress: Duration::from_millis(200), ..TransportLimits::default() };
    let [silent, second, b] = test_nodes(&limits);
    let cut = Arc::new(AtomicBool::new(false));
    let is_cut = Arc::clone(&cut);
    let way =
        Relay::that_lets_through(silent.transport.local_address(), |_| true, move |_| !is_cut.load(Relaxed))
            .await;
    b.peers.set(silent.node, PeerAddress { address: way.address, fingerprint: silent.fingerprint });
    let content = content(16 * MIB);
    let object = Object::new([content.clone()]);
    let _offers = [bulk(&silent).offer(object.clone()), bulk(&second).offer(object.clone())];
    let (sink, allowed, mut reports) = slow(4 * MIB);
    let (name, owners) = (object.name(), vec![silent.node, second.node]);
    let fetcher = bulk(&b);
    let fetching = tokio::spawn(async move { fetcher.fetch(name, sink, || owners.clone(), SOON).await });
    while reports.recv().await.unwrap() < 4 * MIB {}
    cut.store(true, Relaxed);
    allowed.add_permits(12 * MIB);
    let sink = time::timeout(SOON, fetching).await.expect("an end in time").unwrap().unwrap();
    assert!(sink.got == content);
    assert!(bulk(&second).figures().sent_bytes <= 12 * MIB as u64);
    until("the owner has given up", || bulk(&silent).figures().served == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_concurrent_fetchers_all_succeed_within_the_limit() {
    let limits = TransportLimits { bulk_served_max: 3, ..TransportLimits::default() };
    let owner = TestNode::with(1, limits);
    let content = content(2 * MIB);
    let object = Object::new([content.clone()]);
    let _offer = bulk(&owner).offer(object.clone());
    let mut fetching = JoinSet::new();
    for number in 2..52 {
        let fetcher = TestNode::new(number);
        fetcher.knows(&owner);
        owner.knows(&fetcher);
        let name = object.name();
        fetching.spawn(async move {
            let fetched = bulk(&fetcher).fetch(name, Vec::new(), || vec![NodeId(1)], SOON).await;
            fetched.unwrap()
        });
    }
    let (mut fetched, mut most) = (0, 0);
    let all = async {
        loop {
            tokio::select! {
                biased;
                got = fetching.join_next() => match got {
                    Some(got) => {
                        assert!(got.unwrap() == content);
                        fetched += 1;
                    }
                    None => break,
                },
                () = tokio::task::yield_now() => most = most.max(bulk(&owner).figures().served),
            }
        }
    };
    time::timeout(3 * SOON, all).await.expect("all get it in time");
    assert_eq!(fetched, 50);
    assert!((1..=3).contains(&most), "{most} were served at a time");
    until("nothing is served any more", || bulk(&owner).figures().served == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_owner_is_reported_although_a_later_owner_is_dead() {
    let limits = TransportLimits { bulk_served_max: 0, ..TransportLimits::default() };
    let [busy, b] = test_nodes(&limits);
    let object = Object::new([content(100)]);
    let _offer = bulk(&busy).offer(object.clone());
    let dead = TestNode::new(9);
    for owners in [[&busy, &dead], [&dead, &busy]] {
        assert!(matches!(fetch_from(&b, object.name(), &owners).await, Err(FetchError::Busy)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fetches_of_one_node_share_a_connection_within_its_limits() {
    let limits = TransportLimits { bulk_fetched_max: 6, bulk_streams_max: 2, ..TransportLimits::default() };
    let [owner, b] = test_nodes(&limits);
    let object = Object::new([content(MIB)]);
    let _offer = bulk(&owner).offer(object.clone());
    let (fetcher, node, name) = (bulk(&b), owner.node, object.name());
    let mut fetching = JoinSet::new();
    for _ in 0..30 {
        let fetcher = fetcher.clone();
        fetching.spawn(async move { fetcher.fetch(name, Vec::<Bytes>::new(), || vec![node], SOON).await });
    }
    while let Some(fetched) = time::timeout(SOON, fetching.join_next()).await.expect("an end in time") {
        assert!(fetched.unwrap().unwrap().concat() == object.pieces().concat());
    }
    assert_eq!(b.transport.hub.endpoint.open_connections(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn patient_fetch_of_a_missing_object_does_not_stop_other_fetches() {
    let limits = TransportLimits { bulk_fetched_max: 1, ..TransportLimits::default() };
    let [owner, b] = test_nodes(&limits);
    let (object, missing) = (Object::new([content(100)]), Object::new([content(101)]).name());
    let _offer = bulk(&owner).offer(object.clone());
    let (fetcher, node, (round, mut rounds)) = (bulk(&b), owner.node, mpsc::unbounded_channel());
    let patient = tokio::spawn(async move {
        let owners = || {
            let _ = round.send(());
            vec![node]
        };
        fetcher.fetch(missing, Vec::<Bytes>::new(), owners, 4 * SOON).await.map(drop)
    });
    for _ in 0..2 {
        rounds.recv().await.unwrap();
    }
    assert!(fetch_from(&b, object.name(), &[&owner]).await.unwrap() == content(100));
    assert!(!patient.is_finished());
    patient.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_fetch_stops_the_owner() {
    let (a, b) = pair();
    let object = Object::new([content(32 * MIB)]);
    let _offer = bulk(&a).offer(object.clone());
    let (sink, _allowed, mut reports) = slow(MIB);
    let (fetcher, name, node) = (bulk(&b), object.name(), a.node);
    let fetching =
        tokio::spawn(async move { fetcher.fetch(name, sink, || vec![node], SOON).await.map(drop) });
    while reports.recv().await.unwrap() < MIB {}
    assert_eq!(bulk(&a).figures().served, 1);
    fetching.abort();
    until("the owner has noticed", || bulk(&a).figures().served == 0).await;
    let sent = bulk(&a).figures().sent_bytes;
    assert!(sent < 16 * MIB as u64, "{sent} bytes");
    assert!(fetch_from(&b, name, &[&a]).await.is_ok(), "its place is free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_sink_stops_the_owner_at_the_window_but_no_messages() {
    let (a, mut b) = pair();
    let object = Object::new([content(64 * MIB)]);
    let _offer = bulk(&a).offer(object.clone());
    let (fetcher, name, node) = (bulk(&b), object.name(), a.node);
    let mut held = Vec::new();
    let mut fetching = JoinSet::new();
    for _ in 0..4 {
        let (sink, allowed, reports) = slow(0);
        held.push((allowed, reports));
        let fetcher = fetcher.clone();
        fetching.spawn(async move { fetcher.fetch(name, sink, || vec![node], Duration::ZERO).await });
    }
    until("all are served", || bulk(&a).figures().served == 4).await;
    // All messages arrive while the fetches are in progress.
    for number in 0..100_u8 {
        a.send(b.node, vec![number; if number % 50 == 0 { 2 * MIB } else { 100 }]);
        assert!(matches!(b.arrival().await, Heard::Message { payload, .. } if payload[0] == number));
    }
    let sent = bulk(&a).figures().sent_bytes;
    assert!(sent < 16 * MIB as u64, "the owner sent {sent} bytes to sinks that take none");
    assert_eq!(bulk(&a).figures().served, 4);
    for (allowed, _) in &held {
        allowed.add_permits(64 * MIB);
    }
    while let Some(fetched) = time::timeout(SOON, fetching.join_next()).await.expect("an end in time") {
        assert_eq!(fetched.unwrap().unwrap().got.len(), 64 * MIB);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_overtake_a_fetch_over_a_slow_connection() {
    let (a, mut b) = (TestNode::new(1), TestNode::new(2));
    // The transfer takes seconds on this connection: a message that waited for it would arrive after it.
    let way = Relay::of_bytes_per_ms(a.transport.local_address(), 4_000).await;
    b.peers.set(a.node, PeerAddress { address: way.address, fingerprint: a.fingerprint });
    a.knows(&b);
    let object = Object::new([content(8 * MIB)]);
    let _offer = bulk(&a).offer(object.clone());
    let (sink, _allowed, mut reports) = slow(64 * MIB);
    let (fetcher, name, node) = (bulk(&b), object.name(), a.node);
    let fetching =
        tokio::spawn(async move { fetcher.fetch(name, sink, || vec![node], SOON).await.map(drop) });
    let order = Arc::new(Mutex::new(Vec::new()));
    assert!(reports.recv().await.is_some(), "it is under way");
    let its_order = Arc::clone(&order);
    let ended = tokio::spawn(async move {
        fetching.await.unwrap().unwrap();
        lock(&its_order).push("object");
    });
    for number in 0..20 {
        a.send(b.node, vec![number]);
        assert!(matches!(b.arrival().await, Heard::Message { .. }));
        lock(&order).push("message");
    }
    time::timeout(SOON, ended).await.expect("an end in time").unwrap();
    let order = lock(&order);
    let overtaken = order.iter().position(|&what| what == "object").unwrap();
    assert!(overtaken >= 2, "{overtaken} messages came before the object");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_request_is_not_answered_and_affects_no_other_request() {
    let (a, b) = pair();
    let object = Object::new([content(100)]);
    let _offer = bulk(&a).offer(object.clone());
    let connection = b.transport.hub.reach(a.node).await.unwrap();
    let beyond = codec::encode(&Ask { object: object.name(), offset: 101 }).unwrap();
    for question in [vec![], vec![0xff; 10], vec![0; 100_000], beyond] {
        assert!(exchange(&connection, &question).await.is_empty());
    }
    assert!(fetch_from(&b, object.name(), &[&a]).await.unwrap() == content(100));
    assert!(connection.close_reason().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn chain_of_nodes_forwards_an_incomplete_object() {
    let [first, second, third, fourth] = test_nodes(&TransportLimits::default());
    let content = content(16 * MIB);
    let name = Object::new([content.clone()]).name();
    // The first node has only a part so far.
    let source = Object::to_be_filled(name);
    let _offer = bulk(&first).offer(source.object().clone());
    let mut offers = Vec::new();
    let mut fetching = JoinSet::new();
    for (node, owner) in [(&second, &first), (&third, &second), (&fourth, &third)] {
        let (bulk, owner, filling) = (bulk(node), owner.node, Object::to_be_filled(name));
        offers.push(bulk.offer(filling.object().clone()));
        fetching.spawn(async move {
            bulk.fetch(name, filling, || vec![owner], SOON).await.map(Filling::complete)
        });
    }
    source.add(content.slice(..5 * MIB));
    until("the part is at the end of the chain", || bulk(&fourth).figures().received_bytes > 4 * MIB as u64)
        .await;
    source.add(content.slice(5 * MIB..));
    source.complete();
    while let Some(fetched) = time::timeout(SOON, fetching.join_next()).await.expect("an end in time") {
        assert!(fetched.unwrap().unwrap().pieces().concat() == content);
    }
    for node in [&first, &second, &third] {
        assert_eq!(bulk(node).figures().sent_bytes, 16 * MIB as u64, "each sends it once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fetch_continues_at_the_next_owner_when_the_source_of_an_owner_fails() {
    let [first, second, b] = test_nodes(&TransportLimits::default());
    let content = content(8 * MIB);
    let object = Object::new([content.clone()]);
    let coming = Object::to_be_filled(object.name());
    coming.add(content.slice(..3 * MIB));
    let _offers = [bulk(&first).offer(coming.object().clone()), bulk(&second).offer(object.clone())];
    let (sink, allowed, mut reports) = slow(MIB);
    let (fetcher, name, owners) = (bulk(&b), object.name(), vec![first.node, second.node]);
    let fetching =
        tokio::spawn(async move { fetcher.fetch(name, sink, || owners.clone(), Duration::ZERO).await });
    while reports.recv().await.unwrap() < MIB {}
    drop(coming);
    allowed.add_permits(8 * MIB);
    let sink = time::timeout(SOON, fetching).await.expect("an end in time").unwrap().unwrap();
    assert!(sink.got == content);
}

/// A sink that counts its bytes.
struct Counts(u64);

impl Sink for Counts {
    async fn take(&mut self, bytes: Bytes) -> io::Result<()> {
        self.0 += bytes.len() as u64;
        Ok(())
    }

    async fn clear(&mut self) -> io::Result<()> {
        self.0 = 0;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_sink_fails_the_fetch() {
    struct Full;
    impl Sink for Full {
        async fn take(&mut self, _: Bytes) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }

        async fn clear(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (a, b) = pair();
    let object = Object::new([content(MIB)]);
    let _offer = bulk(&a).offer(object.clone());
    let fetched = bulk(&b).fetch(object.name(), Full, || vec![a.node], SOON).await.map(drop);
    assert!(matches!(fetched, Err(FetchError::Sink(_))), "{fetched:?}");
    until("the owner has noticed", || bulk(&a).figures().served == 0).await;
}

/// `TASKWORK_LONG=1` extends it to offsets and lengths beyond 32 bits.
#[tokio::test(flavor = "multi_thread")]
async fn object_of_more_than_four_gibibytes_arrives() {
    let (a, b) = pair();
    let (piece, pieces) =
        (content(64 * MIB), if std::env::var_os("TASKWORK_LONG").is_some() { 64 } else { 4 });
    let object = Object::new(std::iter::repeat_n(piece, pieces).chain([Bytes::from_static(b"and a bit")]));
    let bytes = (64 * MIB * pieces + 9) as u64;
    assert_eq!(object.name().bytes, bytes);
    let _offer = bulk(&a).offer(object.clone());
    let fetched = bulk(&b).fetch(object.name(), Counts(0), || vec![a.node], SOON).await;
    assert_eq!(fetched.unwrap().0, bytes);
}
