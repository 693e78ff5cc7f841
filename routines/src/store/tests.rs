//! The store in a folder, in memory, and with faults.

use std::{
    collections::VecDeque,
    fmt, fs,
    io::{Read as _, Write as _},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, memory::InMemory, path::Path as ObjectPath,
};
use taskwork_store::PART_BYTES;
use tempfile::tempdir;

use super::{
    segment::{self, Draft, tests::value},
    *,
};
use crate::testing::package;

const LONG: Duration = Duration::from_secs(30);

/// A fault of an access.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// The store is full or unavailable.
    Fails,
    /// The object is written, but the answer is lost.
    LosesAnswer,
}

/// A store in memory whose next writes, and reads, have faults.
#[derive(Debug, Default)]
pub(crate) struct Faulty {
    inner: InMemory,
    writes: Mutex<VecDeque<Fault>>,
    reads: Mutex<usize>,
    /// The number of reads of contents of resources.
    contents: Mutex<usize>,
}

impl Faulty {
    fn start() -> (Arc<Self>, Store) {
        let faulty = Arc::<Self>::default();
        let store = Store::new(Objects::new(Arc::clone(&faulty) as Arc<dyn ObjectStore>).unwrap()).unwrap();
        (faulty, store)
    }

    fn next_writes(&self, faults: &[Fault]) {
        self.writes.lock().unwrap().extend(faults);
    }

    pub(crate) fn next_reads(&self, faults: usize) {
        *self.reads.lock().unwrap() = faults;
    }

    pub(crate) fn contents_read(&self) -> usize {
        *self.contents.lock().unwrap()
    }

    fn has_faults(&self) -> bool {
        !self.writes.lock().unwrap().is_empty()
    }
}

fn fault() -> Error {
    Error::Generic { store: "test", source: "a fault".into() }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        name: &ObjectPath,
        content: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        let fault_now = self.writes.lock().unwrap().pop_front();
        match fault_now {
            Some(Fault::Fails) => Err(fault()),
            Some(Fault::LosesAnswer) => self.inner.put_opts(name, content, options).await.and(Err(fault())),
            None => self.inner.put_opts(name, content, options).await,
        }
    }

    async fn put_multipart_opts(
        &self,
        name: &ObjectPath,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(name, options).await
    }

    async fn get_opts(&self, name: &ObjectPath, options: GetOptions) -> object_store::Result<GetResult> {
        let is_faulty = {
            let mut reads = self.reads.lock().unwrap();
            let is_faulty = *reads > 0;
            *reads = reads.saturating_sub(1);
            is_faulty
        };
        if name.as_ref().starts_with("resources/") && !options.head {
            *self.contents.lock().unwrap() += 1;
        }
        if is_faulty { Err(fault()) } else { self.inner.get_opts(name, options).await }
    }

    fn delete_stream(
        &self,
        names: BoxStream<'static, object_store::Result<ObjectPath>>,
    ) -> BoxStream<'static, object_store::Result<ObjectPath>> {
        self.inner.delete_stream(names)
    }

    fn list(&self, folder: Option<&ObjectPath>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list(folder)
    }

    async fn list_with_delimiter(&self, folder: Option<&ObjectPath>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(folder).await
    }

    async fn copy_opts(
        &self,
        from: &ObjectPath,
        to: &ObjectPath,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// Runs a test on a store of each kind.
fn on_each(test: impl Fn(&Store)) {
    let folder = tempdir().unwrap();
    test(&Store::open(folder.path()).unwrap());
    let url = format!("file://{}", folder.path().join("a%20b").display());
    test(&Store::open(Path::new(&url)).unwrap());
    assert!(folder.path().join("a b/id").exists());
    test(&Store::new(Objects::new(Arc::new(InMemory::new())).unwrap()).unwrap());
    #[cfg(feature = "s3")]
    if let Ok(url) = std::env::var("ROUTINES_TEST_S3") {
        let url = format!("{url}/{:x}", rand::random::<u64>());
        test(&Store::open(Path::new(&url)).unwrap());
    }
}

fn write(store: &Store, name: &str, results: &[(u64, &str)]) {
    let mut draft = Draft::new();
    for (index, json) in results {
        draft.add(*index, &value(json));
    }
    store.objects.put(&format!("jobs/j/{name}"), draft.seal()).unwrap();
}

fn open(store: &Store, expected: u64) -> Result<Results, ResultsError> {
    Results::open(store.objects.clone(), &Store::job("j"), expected)
}

fn lines(results: &Results) -> Vec<String> {
    results.lines(0, usize::MAX, usize::MAX).unwrap().into_iter().map(|line| line.json).collect()
}

#[test]
fn place_of_a_store_is_a_folder_or_a_known_url() {
    for (place, reason) in [("gs://bucket", "s3://"), ("file://relative/x", "absolute"), ("s3://", "")] {
        let refused = Store::open(Path::new(place)).unwrap_err().to_string();
        assert!(refused.contains(reason) && refused.contains(place), "{refused}");
    }
}

#[test]
fn name_resolves_to_one_digest_permanently() {
    on_each(|store| {
        let (source, node) = (tempdir().unwrap(), tempdir().unwrap());
        let first = package(source.path(), "1", "run", "");
        let name = first.name();
        assert!(matches!(store.resolve(&name), Err(StoreError::Missing { .. })));
        assert!(matches!(store.package(&first.digest, node.path()), Err(StoreError::Missing { .. })));
        store.deploy(&first).unwrap();
        store.deploy(&first).unwrap();
        for name in [&name, &first.digest] {
            assert_eq!(store.resolve(name).unwrap(), first.digest);
        }
        let unpacked = store.package(&first.digest, node.path()).unwrap();
        assert_eq!((unpacked.digest, unpacked.files), (first.digest.clone(), first.files.clone()));
        fs::write(first.folder.join("module.py"), "2").unwrap();
        let second = Package::read(&first.folder).unwrap();
        let taken = store.deploy(&second);
        assert!(matches!(taken, Err(StoreError::Taken { digest, .. }) if digest == first.digest));
        assert_eq!(store.resolve(&name).unwrap(), first.digest);
        for wrong in ["pi", "", "../pi@1", "pi@", "pi@1/..", "@1"] {
            assert!(matches!(store.resolve(wrong), Err(StoreError::Name { .. })), "{wrong}");
        }
        // Its archive is replaced by another one.
        let archive = store.objects.get(&archive(&second.digest)).unwrap();
        store.objects.put(&super::archive(&first.digest), archive).unwrap();
        let changed = store.package(&first.digest, tempdir().unwrap().path());
        assert!(matches!(changed, Err(StoreError::Package(PackageError::Changed { .. }))));
    });
}

#[test]
fn created_object_is_not_replaced() {
    on_each(|store| {
        let objects = &store.objects;
        assert!(objects.create("o/file", "first").unwrap());
        assert!(!objects.create("o/file", "second").unwrap());
        assert_eq!(objects.get_text("o/file").unwrap(), "first");
        assert_eq!(objects.list("o").unwrap(), ["file"]);
        objects.put("o/file", "third").unwrap();
        assert_eq!(objects.get_text("o/file").unwrap(), "third");
        for _ in 0..2 {
            objects.delete("o/file").unwrap();
        }
        assert_eq!(objects.get("o/file").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(objects.list("o").unwrap(), [""; 0]);
    });
    let folder = tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    store.objects.create("o/file", "first").unwrap();
    store.objects.create("o/file", "second").unwrap();
    assert_eq!(fs::read_dir(folder.path().join("o")).unwrap().count(), 1, "no drafts are left");
}

#[test]
fn large_object_appears_when_it_is_finished() {
    on_each(|store| {
        let content: Vec<u8> = (0_u8..=250).cycle().take(PART_BYTES + 5).collect();
        for content in [&content[..], b""] {
            let mut upload = store.objects.upload("large");
            upload.write_all(content).unwrap();
            upload.shutdown().unwrap();
            let (mut download, bytes) = store.objects.download("large").unwrap();
            let mut read = Vec::new();
            download.read_to_end(&mut read).unwrap();
            assert!(read == content && bytes == content.len() as u64);
        }
        let mut upload = store.objects.upload("other");
        upload.write_all(&content).unwrap();
        drop(upload);
        assert!(!store.objects.exists("other").unwrap());
    });
}

#[test]
fn index_in_several_segments_counts_once_and_permanently() {
    on_each(|store| {
        assert!(matches!(open(store, 3), Err(ResultsError::Count { found: 0, .. })), "no node has written");
        write(store, "b-0.seg", &[(1, "\"b\""), (2, "\"b\"")]);
        write(store, "c-0.seg", &[(1, "\"c\""), (0, "\"c\"")]);
        assert!(matches!(open(store, 4), Err(ResultsError::Count { found: 3, .. })));
        let sealed = lines(&open(store, 3).unwrap());
        let expected =
            [r#"{"index":0,"value":"c"}"#, r#"{"index":1,"value":"b"}"#, r#"{"index":2,"value":"b"}"#];
        assert_eq!(sealed, expected);
        // A node that was considered lost still writes.
        write(store, "a-0.seg", &[(0, "\"a\""), (1, "\"a\""), (3, "\"a\"")]);
        assert_eq!(lines(&open(store, 3).unwrap()), expected);
    });
}

#[test]
fn pages_are_limited_by_lines_and_bytes() {
    on_each(|store| {
        write(store, "a-0.seg", &[(5, "5"), (0, "0"), (9, "9")]);
        let results = open(store, 3).unwrap();
        let page = |from, most, bytes| {
            let lines = results.lines(from, most, bytes).unwrap();
            lines.iter().map(|line| line.index).collect::<Vec<_>>()
        };
        assert_eq!(page(0, 2, usize::MAX), [0, 5]);
        assert_eq!(page(1, 9, 1), [5]);
        assert_eq!(page(6, 9, usize::MAX), [9]);
        assert_eq!(page(10, 9, usize::MAX), [0; 0]);
        assert_eq!(results.len(), 3);
    });
}

#[test]
fn damaged_objects_are_reported() {
    on_each(|store| {
        write(store, "a-0.seg", &[(0, "0")]);
        open(store, 1).unwrap();
        store.objects.put("jobs/j/a-0.seg", "x").unwrap();
        assert!(matches!(open(store, 1), Err(ResultsError::Segment { .. })));
        write(store, "a-0.seg", &[(1, "1")]);
        assert!(matches!(open(store, 1), Err(ResultsError::Missing { index: 0, .. })));
        store.objects.put("jobs/j/manifest.json", "{}").unwrap();
        assert!(matches!(open(store, 1), Err(ResultsError::Manifest { .. })));
    });
}

#[test]
fn manifest_with_a_lost_answer_is_the_only_one() {
    let (faulty, store) = Faulty::start();
    write(&store, "b-0.seg", &[(0, "\"b\"")]);
    faulty.next_writes(&[Fault::Fails, Fault::LosesAnswer]);
    assert!(matches!(open(&store, 1), Err(ResultsError::Io { .. })), "the store is full");
    assert!(matches!(open(&store, 1), Err(ResultsError::Io { .. })), "the answer is lost");
    write(&store, "a-0.seg", &[(0, "\"a\"")]);
    assert_eq!(lines(&open(&store, 1).unwrap()), [r#"{"index":0,"value":"b"}"#]);
}

#[test]
fn name_with_a_lost_answer_is_deployed() {
    let (faulty, store) = Faulty::start();
    let source = tempdir().unwrap();
    let package = package(source.path(), "1", "run", "");
    faulty.next_writes(&[Fault::LosesAnswer]);
    assert!(matches!(store.deploy(&package), Err(StoreError::Io { .. })));
    store.deploy(&package).unwrap();
    assert_eq!(store.resolve(&package.name()).unwrap(), package.digest);
    *faulty.reads.lock().unwrap() = 1;
    let unavailable = store.resolve(&package.name());
    assert!(matches!(unavailable, Err(StoreError::Io { .. })), "an unavailable name is not a missing one");
}

fn writer(store: &Store) -> Writer {
    Writer::start(store.objects.clone(), format!("{}/w", Store::job("j"))).unwrap()
}

#[test]
fn hurried_results_are_in_segment_when_durable() {
    on_each(|store| {
        let writer = writer(store);
        for index in 0..3 {
            let last = writer.put(&[(index, value("1")), (index + 10, value("2"))]);
            writer.hurry();
            assert!(writer.wait(last, LONG));
            let content = store.objects.get(&format!("jobs/j/w-{index:010}.seg")).unwrap();
            let places = segment::places(&content).unwrap();
            assert_eq!(places.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [index, index + 10]);
        }
    });
}

#[test]
fn results_become_durable_without_hurry() {
    let (_, store) = Faulty::start();
    let writer = writer(&store);
    let last = writer.put(&[(0, value("1"))]);
    assert!(writer.wait(last, LONG));
}

#[test]
fn results_are_durable_once_after_faults_of_the_store() {
    let (faulty, store) = Faulty::start();
    let writer = writer(&store);
    faulty.next_writes(&[Fault::Fails, Fault::LosesAnswer]);
    let last = writer.put(&[(0, value("1"))]);
    writer.hurry();
    while faulty.has_faults() {
        assert!(writer.durable() < last, "it counts although its segment was not written");
        std::thread::yield_now();
    }
    assert!(writer.wait(last, LONG));
    assert_eq!(store.objects.list(&Store::job("j")).unwrap().len(), 1);
    assert_eq!(lines(&open(&store, 1).unwrap()), [r#"{"index":0,"value":1}"#]);
}
