//! Objects of companions, in memory and in files: owners that are lost, contents that are wrong, ends of a job.

use std::{
    fs,
    io::{self, Read as _, Seek as _},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use tokio::{sync::Semaphore, time};

use super::{
    super::{
        TransportLimits, lock,
        tests::{SOON, TestNode, pair, until},
    },
    tests::{MIB, bulk, content, test_nodes},
    *,
};
use crate::companion::{Desk, Fetching, Objects};

/// A companion's node, its objects, and its desk.
struct Companion {
    objects: Objects,
    desk: Arc<Desk>,
    /// Keeps the exchange, as a seat does.
    bulk: Bulk,
}

fn companion(node: &TestNode) -> Companion {
    let (desk, bulk) = (Arc::<Desk>::default(), bulk(node));
    let exchange = Arc::new(bulk.downgrade());
    Companion { objects: Objects::new(Arc::clone(&desk), Some(exchange)), desk, bulk }
}

async fn in_time<T>(fetching: Fetching<T>) -> Result<T, FetchError> {
    time::timeout(SOON, fetching).await.expect("an end in time")
}

fn written(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    file
}

fn read_back(mut file: &fs::File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

/// A content of which only so many bytes can be read for now.
struct Gated {
    content: Vec<u8>,
    allowed: Arc<Semaphore>,
}

impl ObjectContent for Gated {
    fn part(&self, offset: u64, bytes_max: usize) -> io::Result<Vec<u8>> {
        let offset = usize::try_from(offset).unwrap();
        let bytes = self.allowed.available_permits().saturating_sub(offset).min(bytes_max);
        if bytes == 0 {
            return Err(io::Error::other("the disk has failed"));
        }
        Ok(self.content[offset..offset + bytes].to_vec())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn offered_bytes_and_files_arrive_in_memory_and_in_files() {
    let (a, b) = pair();
    let (owner, fetcher) = (companion(&a), companion(&b));
    for bytes in [0, 1, 100_000, 5 * MIB + 7] {
        let content = content(bytes);
        let source = written(&content);
        let in_memory = owner.objects.offer(content.to_vec());
        let name = in_memory.name();
        let fetched = in_time(fetcher.objects.fetch(name, || vec![NodeId(1)], Duration::ZERO)).await;
        assert!(fetched.unwrap() == content, "{bytes} bytes of memory");
        drop(in_memory);
        let in_file = owner.objects.offer_file(source.path()).unwrap();
        assert_eq!(in_file.name(), name);
        let target = tempfile::tempfile().unwrap();
        let file = target.try_clone().unwrap();
        in_time(fetcher.objects.fetch_to_file(name, file, || vec![NodeId(1)], Duration::ZERO)).await.unwrap();
        assert!(read_back(&target) == content, "{bytes} bytes of a file");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_offer_does_not_shadow_a_good_one_of_the_same_name() {
    let (a, b) = pair();
    let (owner, fetcher) = (companion(&a), companion(&b));
    let content = content(MIB);
    let name = Object::new([content.clone()]).name();
    let fetch = || in_time(fetcher.objects.fetch(name, || vec![NodeId(1)], Duration::ZERO));
    let unreadable = Gated { content: content.to_vec(), allowed: Arc::new(Semaphore::new(0)) };
    let _unreadable = owner.objects.offer_content(name, unreadable);
    let in_file = owner.objects.offer_file(written(&content).path()).unwrap();
    let first = fetch().await;
    assert!(matches!(first, Err(FetchError::CutOff(_))), "{:?}", first.map(|content| content.len()));
    assert!(fetch().await.unwrap() == content, "from the file");
    drop(in_file);
    let _in_memory = owner.objects.offer(content.to_vec());
    assert!(fetch().await.unwrap() == content, "from memory");
}

/// A content whose reads hang until the sender of its gate is dropped.
struct Hung(Mutex<mpsc::Receiver<()>>);

impl ObjectContent for Hung {
    fn part(&self, _: u64, _: usize) -> io::Result<Vec<u8>> {
        let _ = lock(&self.0).recv();
        Ok(vec![7; 10])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hung_read_keeps_its_slot_and_further_requests_are_rejected() {
    let progress = Duration::from_secs(1);
    let limits =
        TransportLimits { bulk_served_max: 1, bulk_progress: progress, ..TransportLimits::default() };
    let (a, b) = (TestNode::with(1, limits), TestNode::new(2));
    a.knows(&b);
    b.knows(&a);
    let (owner, fetcher) = (companion(&a), companion(&b));
    let ((gate, closed), name) = (mpsc::channel(), Object::new([vec![7; 10].into()]).name());
    let _offer = owner.objects.offer_content(name, Hung(Mutex::new(closed)));
    let fetch = || in_time(fetcher.objects.fetch(name, || vec![NodeId(1)], Duration::ZERO));
    let first = fetch().await;
    assert!(matches!(first, Err(FetchError::CutOff(_))), "{first:?}");
    let second = fetch().await;
    assert!(matches!(second, Err(FetchError::Busy)), "{second:?}");
    drop(gate);
    until("the slot is free", || owner.bulk.figures().served == 0).await;
    assert!(fetch().await.unwrap() == [7; 10]);
}

#[tokio::test(flavor = "multi_thread")]
async fn object_of_a_dropped_offer_is_unknown() {
    let (a, b) = pair();
    let (owner, fetcher) = (companion(&a), companion(&b));
    let offer = owner.objects.offer(b"data".to_vec());
    let name = offer.name();
    drop(offer);
    let refused = in_time(fetcher.objects.fetch(name, || vec![NodeId(1)], Duration::ZERO)).await;
    assert!(matches!(refused, Err(FetchError::Unknown)), "{refused:?}");
    let nobody = in_time(fetcher.objects.fetch(name, Vec::new, Duration::ZERO)).await;
    assert!(matches!(nobody, Err(FetchError::NoOwner)), "{nobody:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fetch_continues_at_the_second_owner_when_the_first_one_is_lost() {
    let [first, second, b] = test_nodes(&TransportLimits::default());
    let (owner, other, fetcher) = (companion(&first), companion(&second), companion(&b));
    let content = content(8 * MIB);
    let source = written(&content);
    let whole = other.objects.offer_file(source.path()).unwrap();
    let allowed = Arc::new(Semaphore::new(3 * MIB));
    let gated = Gated { content: content.to_vec(), allowed };
    let _part = owner.objects.offer_content(whole.name(), gated);
    let target = tempfile::tempfile().unwrap();
    let owners = || vec![NodeId(1), NodeId(2)];
    let fetching =
        fetcher.objects.fetch_to_file(whole.name(), target.try_clone().unwrap(), owners, Duration::ZERO);
    in_time(fetching).await.unwrap();
    assert!(read_back(&target) == content);
    let sent = [&owner, &other].map(|companion| companion.bulk.figures().sent_bytes);
    assert_eq!(sent[0], 3 * MIB as u64);
    // A reset may discard bytes that have not been read.
    assert!((5 * MIB as u64..=8 * MIB as u64).contains(&sent[1]), "the second owner sent {} bytes", sent[1]);
    assert_eq!(fetcher.bulk.figures().received_bytes, 8 * MIB as u64, "no byte was received twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_and_truncated_files_are_refused_until_an_owner_has_the_right_one() {
    let [liar, right, b] = test_nodes(&TransportLimits::default());
    let (owner, other, fetcher) = (companion(&liar), companion(&right), companion(&b));
    let content = content(2 * MIB);
    let whole = other.objects.offer(content.to_vec());
    let name = whole.name();
    for is_truncated in [false, true] {
        let mut wrong = content.to_vec();
        wrong[MIB] ^= 1;
        wrong.truncate(if is_truncated { MIB + 1 } else { 2 * MIB });
        let lie = fs::File::open(written(&wrong).path()).unwrap();
        let _lie = owner.objects.offer_content(name, lie);
        let refused = in_time(fetcher.objects.fetch(name, || vec![NodeId(1)], Duration::ZERO)).await;
        match refused {
            Err(FetchError::Garbled) if !is_truncated => {}
            Err(FetchError::CutOff(_)) if is_truncated => {}
            refused => panic!("{:?}", refused.map(|content| content.len())),
        }
        let target = tempfile::tempfile().unwrap();
        let owners = || vec![NodeId(1), NodeId(2)];
        let fetching =
            fetcher.objects.fetch_to_file(name, target.try_clone().unwrap(), owners, Duration::ZERO);
        in_time(fetching).await.unwrap();
        assert!(read_back(&target) == content);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn file_that_cannot_be_written_fails_the_fetch() {
    let (a, b) = pair();
    let (owner, fetcher) = (companion(&a), companion(&b));
    let offer = owner.objects.offer(vec![7; MIB]);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let refused = in_time(fetcher.objects.fetch_to_file(offer.name(), full, || vec![NodeId(1)], SOON)).await;
    match refused {
        Err(FetchError::Sink(error)) => assert_eq!(error.kind(), io::ErrorKind::StorageFull),
        refused => panic!("{refused:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fetch_works_on_a_thread_without_a_runtime() {
    let (a, b) = pair();
    let (owner, fetcher) = (companion(&a), companion(&b));
    let offer = owner.objects.offer(vec![7; MIB]);
    let (name, objects) = (offer.name(), fetcher.objects.clone());
    let fetched = thread::spawn(move || {
        let alone = tokio::runtime::Builder::new_current_thread().build().unwrap();
        alone.block_on(objects.fetch(name, || vec![NodeId(1)], Duration::ZERO))
    });
    let fetched = tokio::task::spawn_blocking(|| fetched.join().unwrap()).await.unwrap();
    assert!(fetched.unwrap() == vec![7; MIB]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_fetch_and_ended_job_release_their_places() {
    let (a, b) = pair();
    let (owner, fetcher) = (companion(&a), companion(&b));
    let name = Object::new([content(MIB)]).name();
    let filling = Object::to_be_filled(name);
    filling.add(content(10));
    let _offer = owner.bulk.offer(filling.object().clone());
    let fetch = || fetcher.objects.fetch(name, || vec![NodeId(1)], SOON);
    let dropped = fetch();
    until("it is served", || owner.bulk.figures().served == 1).await;
    drop(dropped);
    until("it is not served any more", || owner.bulk.figures().served == 0).await;
    let ended = fetch();
    until("it is served", || owner.bulk.figures().served == 1).await;
    fetcher.desk.end();
    assert!(matches!(in_time(ended).await, Err(FetchError::Over)));
    assert!(matches!(in_time(fetch()).await, Err(FetchError::Over)));
    until("it is not served any more", || owner.bulk.figures().served == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_do_not_keep_the_endpoint_of_a_former_seat_open() {
    let (a, b) = pair();
    let (owner, Companion { objects, bulk, .. }) = (companion(&a), companion(&b));
    let offer = owner.objects.offer(vec![7; 10]);
    b.transport.close().await;
    drop(bulk);
    let refused = in_time(objects.fetch(offer.name(), || vec![NodeId(1)], SOON)).await;
    assert!(matches!(refused, Err(FetchError::Over)), "{refused:?}");
    drop(objects.offer(vec![7; 10]));
}
