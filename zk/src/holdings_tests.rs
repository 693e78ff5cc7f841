//! The tasks that nodes hold and those in transit: flushes and claims.

use std::{fmt, sync::atomic::Ordering::Relaxed};

use super::{
    tests::{in_transit, transaction},
    *,
};
use crate::{
    Fate, MemoryStore, job,
    testing::{FATES, Interrupted, ROOT, Stage},
};

/// The maximum number of tries with an unknown outcome if one request is lost.
const TRIES_MAX: usize = 3;

/// Repeats a recipe until its outcome is known.
async fn until_known<T>(
    recipe: impl AsyncFn() -> std::result::Result<T, CommitError>,
) -> std::result::Result<T, CommitError> {
    for _ in 0..TRIES_MAX {
        match recipe().await {
            Err(CommitError::Store(error)) if error.is_transient() => {}
            outcome => return outcome,
        }
    }
    panic!("the outcome stays unknown");
}

/// Repeats a scenario with each single request lost in each way, until it needs no more requests. The
/// scenario returns whether one was lost.
async fn wherever_one_is_lost(scenario: impl AsyncFn(usize, Fate) -> bool) {
    for fate in FATES {
        let mut countdown = 1;
        while scenario(countdown, fate).await {
            countdown += 1;
        }
        assert!(countdown > 3, "the recipe has at least three requests");
    }
}

/// The state of the first attempt, apart from chunks.
#[derive(PartialEq)]
struct State {
    list: Vec<String>,
    parked: Vec<String>,
    outputs: Vec<(String, Vec<u8>)>,
    held: Vec<(String, Vec<u8>)>,
    transits: Vec<(String, Vec<u8>)>,
    txns: Vec<String>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { list, parked, outputs, held, transits, txns } = self;
        let short = |all: &[(String, Vec<u8>)]| {
            let briefly =
                |(name, data): &(String, Vec<u8>)| (name.clone(), data.len(), data.first().copied());
            all.iter().map(briefly).collect::<Vec<_>>()
        };
        let data = [outputs, held, transits].map(|all| short(all));
        write!(f, "{list:?} {parked:?} {txns:?} {data:?}")
    }
}

async fn state(stage: &Stage) -> State {
    let (store, paths) = (&*stage.store, stage.attempt(1));
    let mut holdings = Vec::new();
    for node in stage.names(&paths.held()) {
        let its = held(store, &paths, &node).await.unwrap().unwrap();
        holdings.push((node, its));
    }
    State {
        list: stage.names(&paths.list()),
        parked: stage.names(&paths.parked()),
        outputs: job::outputs(store, &paths).await.unwrap(),
        held: holdings,
        transits: in_transit(stage).await,
        txns: stage.names(&paths.txns()),
    }
}

async fn committed(stage: &Stage, store: &MemoryStore, transaction: &Transaction) {
    commit(store, &stage.cluster, &stage.attempt(1), transaction).await.unwrap();
}

/// Returns the names of the folders of chunks.
async fn large(stage: &Stage) -> Vec<String> {
    stage.store.children(&stage.attempt(1).large()).await.unwrap()
}

fn claim_of(node: &str, source: &Source) -> Claim {
    Claim {
        node: node.to_owned(),
        txn: format!("{node}-c"),
        settled: None,
        source: source.clone(),
        transit: format!("{node}-c~{node}"),
        enrol: None,
    }
}

async fn claimed(
    stage: &Stage,
    store: &MemoryStore,
    of: &Claim,
) -> std::result::Result<Option<Vec<u8>>, CommitError> {
    claim(store, &stage.cluster, &stage.attempt(1), of, &Some).await
}

fn transit(name: &str, gone: Option<&str>) -> Source {
    Source::Transit { name: name.to_owned(), gone: gone.map(str::to_owned) }
}

fn named(name: &str, data: &[u8]) -> (String, Vec<u8>) {
    (name.to_owned(), data.to_vec())
}

/// Adds a member `x` that holds `data`, has given the same to a member `y`, and is lost together with `y`.
async fn lose_x_and_y(stage: &Stage, data: &[u8]) {
    let (x, y) = (stage.member("x").await, stage.member("y").await);
    let flush =
        Transaction { held: data.to_vec(), give: vec![named("x-g0~y", data)], ..transaction("x", 0, &[]) };
    committed(stage, &x, &flush).await;
    stage.tree.expire(x.id());
    stage.tree.expire(y.id());
}

/// Returns the tasks left by `x` and `y` in [`lose_x_and_y`].
fn left_by_x_and_y() -> [Source; 2] {
    [Source::Held("x".to_owned()), transit("x-g0~y", Some("y"))]
}

const SMALL: usize = 10;
/// Too large for a transaction.
const TWO_CHUNKS: usize = 1 << 20;
/// Too large for a znode.
const LARGE: usize = 3 << 20;

#[tokio::test]
async fn flush_with_any_answer_lost_is_atomic_and_counts_once() {
    for size in [SMALL, TWO_CHUNKS] {
        let data = |byte: u8| vec![byte; size];
        wherever_one_is_lost(async |countdown, fate| {
            let stage = Stage::new().await;
            let (a, b) = (stage.member("a").await, stage.member("b").await);
            let given = Transaction { give: vec![named("b-g0~a", &data(1))], ..transaction("b", 0, &[]) };
            committed(&stage, &b, &given).await;
            let first = Transaction { held: data(2), ..transaction("a", 0, &["x", "y"]) };
            committed(&stage, &a, &first).await;
            let before = state(&stage).await;
            let is_lost = stage.lose_one(a.id(), countdown, fate);
            let flush = Transaction {
                held: data(3),
                give: vec![named("a-g0~b", &data(4)), named("a-g1~c", &data(5))],
                take: vec!["b-g0~a".to_owned()],
                output: data(6),
                ..transaction("a", 1, &["y", "z"])
            };
            let after = State {
                list: vec![ROOT.to_owned(), "x".to_owned(), "z".to_owned()],
                parked: before.parked.clone(),
                outputs: vec![named("a", &data(6)), before.outputs[1].clone()],
                held: vec![named("a", &data(3)), before.held[1].clone()],
                transits: vec![named("a-g0~b", &data(4)), named("a-g1~c", &data(5))],
                txns: vec!["a-1".to_owned(), "b-0".to_owned()],
            };
            let flushing = async || commit(&*a, &stage.cluster, &stage.attempt(1), &flush).await;
            if flushing().await.is_err() {
                let now = state(&stage).await;
                assert!(now == before || now == after, "request {countdown}, {fate:?}: {now:?}");
            }
            for _ in 0..2 {
                until_known(flushing).await.unwrap();
                assert_eq!(state(&stage).await, after, "request {countdown}, {fate:?}");
            }
            is_lost.load(Relaxed)
        })
        .await;
    }
}

#[tokio::test]
async fn orphans_with_any_answer_lost_are_claimed_by_one_node() {
    for (source, size) in left_by_x_and_y().iter().flat_map(|source| [(source, SMALL), (source, TWO_CHUNKS)])
    {
        wherever_one_is_lost(async |countdown, fate| {
            let (stage, data) = (Stage::new().await, vec![7; size]);
            lose_x_and_y(&stage, &data).await;
            let (a, b) = (stage.member("a").await, stage.member("b").await);
            let mut after = state(&stage).await;
            let is_lost = stage.lose_one(a.id(), countdown, fate);
            let first = claimed(&stage, &a, &claim_of("a", source)).await;
            let other = claimed(&stage, &b, &claim_of("b", source)).await.unwrap();
            let mine = match first {
                Err(_) => until_known(async || claimed(&stage, &a, &claim_of("a", source)).await).await,
                first => first,
            };
            let mine = mine.unwrap();
            let at = format!("{source:?}, request {countdown}, {fate:?}");
            assert_eq!(usize::from(mine.is_some()) + usize::from(other.is_some()), 1, "{at}");
            let [winner, loser] = if mine.is_some() { ["a", "b"] } else { ["b", "a"] };
            assert!(mine.or(other).as_ref() == Some(&data), "{at}");
            match source {
                Source::Held(_) => after.held.retain(|(node, _)| node != "x"),
                _ => after.transits.clear(),
            }
            after.transits.insert(0, (format!("{winner}-c~{winner}"), data));
            after.txns.insert(0, format!("{winner}-c"));
            assert_eq!(state(&stage).await, after, "{at}");
            let copied_in_vain = format!("{loser}-c-claim");
            assert!(!large(&stage).await.contains(&copied_in_vain), "{at}");
            // The same claim under another id is too late as well.
            let again = Claim { txn: "a-d".to_owned(), transit: "a-d~a".to_owned(), ..claim_of("a", source) };
            let again = until_known(async || claimed(&stage, &a, &again).await).await;
            assert!(again == Ok(None), "{at}");
            assert_eq!(state(&stage).await, after, "{at}");
            is_lost.load(Relaxed)
        })
        .await;
    }
}

#[tokio::test]
async fn pending_claim_of_lost_node_is_claimed_by_next() {
    for source in left_by_x_and_y() {
        wherever_one_is_lost(async |countdown, fate| {
            let (stage, data) = (Stage::new().await, vec![7; TWO_CHUNKS]);
            lose_x_and_y(&stage, &data).await;
            let (a, b) = (stage.member("a").await, stage.member("b").await);
            let is_lost = stage.lose_one(a.id(), countdown, fate);
            let _ = claimed(&stage, &a, &claim_of("a", &source)).await;
            stage.tree.expire(a.id());
            let (txn, transited) = ("b-d".to_owned(), "b-d~b".to_owned());
            let of_a = transit("a-c~a", Some("a"));
            let from_a = Claim { txn, transit: transited, ..claim_of("b", &of_a) };
            let found = [
                claimed(&stage, &b, &claim_of("b", &source)).await.unwrap(),
                claimed(&stage, &b, &from_a).await.unwrap(),
            ];
            let found: Vec<Vec<u8>> = found.into_iter().flatten().collect();
            assert!(found == [data], "{source:?}, request {countdown}, {fate:?}");
            is_lost.load(Relaxed)
        })
        .await;
    }
}

#[tokio::test]
async fn concurrent_claim_during_chunk_read_succeeds_once() {
    for source in left_by_x_and_y() {
        let (stage, data) = (Stage::new().await, vec![7; TWO_CHUNKS]);
        lose_x_and_y(&stage, &data).await;
        let (a, b, paths) = (stage.member("a").await, stage.member("b").await, stage.attempt(1));
        let path = source.path(&*a, &paths).await.unwrap().unwrap();
        let (cluster, of_b) = (stage.cluster.clone(), claim_of("b", &source));
        let claiming = async move {
            let claimed = claim(&*b, &cluster, &paths, &of_b, &Some).await.unwrap();
            assert!(claimed == Some(data));
            Ok(())
        };
        let interrupted = Interrupted::new(&a, path, claiming);
        let of_a = claim_of("a", &source);
        let mine = claim(&interrupted, &stage.cluster, &stage.attempt(1), &of_a, &Some).await;
        assert!(mine == Ok(None) && interrupted.is_over(), "{source:?}");
    }
}

#[tokio::test]
async fn claim_from_member_by_stale_server_is_refused() {
    let sources = [Source::Held("x".to_owned()), transit("a-g0~x", Some("x"))];
    for (source, is_behind) in sources.iter().flat_map(|source| [(source, false), (source, true)]) {
        let stage = Stage::new().await;
        let (a, b) = (stage.member("a").await, stage.member("b").await);
        // The claimer's server may not know yet that `x` has joined, and later that it has left.
        stage.tree.fall_behind(b.id());
        let x = stage.member("x").await;
        committed(&stage, &x, &Transaction { held: b"7".to_vec(), ..transaction("x", 0, &[]) }).await;
        let gift = Transaction { give: vec![named("a-g0~x", b"7")], ..transaction("a", 0, &[]) };
        committed(&stage, &a, &gift).await;
        let (before, paths) = (state(&stage).await, stage.tree.paths_below("/"));
        let claimer = if is_behind { &b } else { &a };
        let of = |node| Claim { enrol: Some(Vec::new()), ..claim_of(node, source) };
        assert_eq!(claimed(&stage, claimer, &of("b")).await, Ok(None), "{source:?}");
        assert_eq!((state(&stage).await, stage.tree.paths_below("/")), (before, paths), "{source:?}");
        if is_behind {
            stage.tree.fall_behind(b.id());
        }
        stage.tree.expire(x.id());
        assert_eq!(claimed(&stage, claimer, &of("b")).await, Ok(Some(b"7".to_vec())), "{source:?}");
    }
}

#[tokio::test]
async fn giver_reclaims_transit_while_receiver_is_member() {
    let stage = Stage::new().await;
    let (a, _b) = (stage.member("a").await, stage.member("b").await);
    let gift = Transaction { give: vec![named("a-g0~b", b"refused")], ..transaction("a", 0, &[]) };
    committed(&stage, &a, &gift).await;
    let back = claimed(&stage, &a, &claim_of("a", &transit("a-g0~b", None))).await;
    assert_eq!(back, Ok(Some(b"refused".to_vec())));
    assert_eq!(in_transit(&stage).await, [named("a-c~a", b"refused")]);
}

#[tokio::test]
async fn claim_moves_adopted_data_and_declined_claim_changes_nothing() {
    for source in left_by_x_and_y().into_iter().chain([Source::Parked(ROOT.to_owned())]) {
        let stage = Stage::new().await;
        lose_x_and_y(&stage, b"the root").await;
        let a = stage.stranger("a").await;
        let of = Claim { enrol: Some(b"nothing".to_vec()), ..claim_of("a", &source) };
        let (before, paths) = (state(&stage).await, stage.tree.paths_below("/"));
        let declined = claim(&*a, &stage.cluster, &stage.attempt(1), &of, &|_| None).await;
        assert_eq!(declined, Ok(None), "{source:?}");
        assert_eq!((state(&stage).await, stage.tree.paths_below("/")), (before, paths), "{source:?}");
        let adopt = |content: Vec<u8>| Some([b"adopted: ", &content[..]].concat());
        let adopted = claim(&*a, &stage.cluster, &stage.attempt(1), &of, &adopt).await;
        assert_eq!(adopted, Ok(Some(b"adopted: the root".to_vec())), "{source:?}");
        assert!(in_transit(&stage).await.contains(&named("a-c~a", b"adopted: the root")), "{source:?}");
    }
}

#[tokio::test]
async fn claim_enrols_on_request_and_keeps_existing_enrolment() {
    for source in left_by_x_and_y() {
        let stage = Stage::new().await;
        lose_x_and_y(&stage, b"7").await;
        let (a, b, paths) = (stage.stranger("a").await, stage.member("b").await, stage.attempt(1));
        let flush = Transaction { held: b"all of b".to_vec(), ..transaction("b", 0, &[]) };
        committed(&stage, &b, &flush).await;
        let enrolling = |node, source| Claim { enrol: Some(b"new".to_vec()), ..claim_of(node, source) };
        assert!(claimed(&stage, &a, &enrolling("a", &source)).await.unwrap().is_some());
        assert_eq!(held(&*a, &paths, "a").await, Ok(Some(b"new".to_vec())));
        stage.tree.expire(a.id());
        let of_a = enrolling("b", &transit("a-c~a", Some("a")));
        assert!(claimed(&stage, &b, &of_a).await.unwrap().is_some());
        assert_eq!(held(&*b, &paths, "b").await, Ok(Some(b"all of b".to_vec())));
        let outputs = job::outputs(&*b, &paths).await.unwrap();
        assert!(outputs.contains(&named("a", b"")) && outputs.contains(&named("b", b"output 0")));
    }
}

#[tokio::test]
async fn claim_of_missing_data_returns_none_after_few_requests() {
    let sources =
        [Source::Held("x".to_owned()), transit("x-g0~y", Some("y")), Source::Parked("t-1".to_owned())];
    for source in sources {
        let stage = Stage::new().await;
        let a = stage.member("a").await;
        let (before, requests) = (state(&stage).await, stage.tree.requests());
        assert_eq!(claimed(&stage, &a, &claim_of("a", &source)).await, Ok(None));
        assert!(stage.tree.requests().reads - requests.reads < 40, "{source:?}");
        assert_eq!(state(&stage).await, before, "{source:?}");
    }
}

#[tokio::test]
async fn claim_repeated_after_take_returns_none() {
    for (source, settled) in
        left_by_x_and_y().iter().flat_map(|source| [(source, None), (source, Some("a-c"))])
    {
        let stage = Stage::new().await;
        lose_x_and_y(&stage, b"7").await;
        let a = stage.member("a").await;
        assert!(claimed(&stage, &a, &claim_of("a", source)).await.unwrap().is_some());
        let flush = Transaction {
            settled: settled.map(str::to_owned),
            take: vec!["a-c~a".to_owned()],
            held: b"7".to_vec(),
            ..transaction("a", 0, &[])
        };
        committed(&stage, &a, &flush).await;
        let before = state(&stage).await;
        assert_eq!(claimed(&stage, &a, &claim_of("a", source)).await, Ok(None));
        assert_eq!(state(&stage).await, before);
    }
}

#[tokio::test]
async fn lost_node_flush_is_refused() {
    let stage = Stage::new().await;
    let (a, b) = (stage.member("a").await, stage.member("b").await);
    let gift = Transaction { give: vec![named("b-g0~a", b"7")], ..transaction("b", 0, &[]) };
    committed(&stage, &b, &gift).await;
    let first = Transaction { held: b"8".to_vec(), ..transaction("a", 0, &["x"]) };
    committed(&stage, &a, &first).await;
    // Its last requests may arrive over a connection that does not know of its loss.
    let ghost = stage.tree.connect();
    stage.tree.expire(a.id());
    let before = (state(&stage).await, stage.tree.paths_below("/"));
    let next = || transaction("a", 1, &["x", "y"]);
    let flushes = [
        next(),
        Transaction { take: vec!["b-g0~a".to_owned()], held: b"78".to_vec(), ..next() },
        Transaction { take: vec!["b-g1~a".to_owned()], ..next() },
        Transaction { give: vec![named("a-g0~b", b"8")], ..next() },
        Transaction { give: vec![named("a-g0~b", &vec![8; LARGE])], ..next() },
        Transaction { held: vec![8; LARGE], ..next() },
        Transaction { output: vec![8; LARGE], ..next() },
        Transaction { park: vec![named("t-1", b"8")], leave: true, ..next() },
    ];
    for flush in flushes {
        let refused = commit(&*ghost, &stage.cluster, &stage.attempt(1), &flush).await;
        assert_eq!(refused, Err(CommitError::NotMember));
        assert_eq!((state(&stage).await, stage.tree.paths_below("/")), before);
    }
}

#[tokio::test]
async fn leaving_node_holds_nothing_and_its_gifts_stay() {
    for size in [SMALL, LARGE] {
        let stage = Stage::new().await;
        let (a, paths) = (stage.member("a").await, stage.attempt(1));
        let first = Transaction { held: vec![1; size], ..transaction("a", 0, &[]) };
        committed(&stage, &a, &first).await;
        let leave = Transaction {
            held: vec![2; size],
            give: vec![named("a-g0~b", b"given")],
            leave: true,
            ..transaction("a", 1, &[])
        };
        for _ in 0..2 {
            committed(&stage, &a, &leave).await;
            assert_eq!(held(&*a, &paths, "a").await, Ok(None));
            assert_eq!(stage.names(&paths.held()), Vec::<String>::new());
            assert_eq!(in_transit(&stage).await, [named("a-g0~b", b"given")]);
            assert_eq!(large(&stage).await, Vec::<String>::new());
            assert!(left_cleanly(&*stage.store, &paths, "a").await.unwrap());
        }
    }
}

#[tokio::test]
async fn large_data_reads_back_and_leaves_no_chunks() {
    let stage = Stage::new().await;
    let (a, b, paths) = (stage.member("a").await, stage.member("b").await, stage.attempt(1));
    let data = |byte: u8| -> Vec<u8> { (0..LARGE).map(|k| k.to_le_bytes()[0] ^ byte).collect() };
    let given = Transaction {
        held: data(1),
        give: vec![named("a-g0~b", &data(2)), named("a-g1~b", &data(3))],
        ..transaction("a", 0, &[])
    };
    committed(&stage, &a, &given).await;
    assert!(held(&*b, &paths, "a").await == Ok(Some(data(1))));
    assert!(in_transit(&stage).await == given.give);
    assert_eq!(large(&stage).await, ["a-0-give0", "a-0-give1", "a-0-held"]);

    committed(&stage, &a, &Transaction { held: data(4), ..transaction("a", 1, &[]) }).await;
    assert!(held(&*b, &paths, "a").await == Ok(Some(data(4))));
    assert_eq!(large(&stage).await, ["a-0-give0", "a-0-give1", "a-1-held"]);

    let taken = Transaction { take: vec!["a-g0~b".to_owned()], held: data(5), ..transaction("b", 0, &[]) };
    committed(&stage, &b, &taken).await;
    assert!(held(&*b, &paths, "b").await == Ok(Some(data(5))));
    assert_eq!(large(&stage).await, ["a-0-give1", "a-1-held", "b-0-held"]);

    let back = claimed(&stage, &a, &claim_of("a", &transit("a-g1~b", None))).await;
    assert!(back == Ok(Some(data(3))));
    assert_eq!(large(&stage).await, ["a-1-held", "a-c-claim", "b-0-held"]);

    stage.tree.expire(a.id());
    for (number, source, expected) in
        [(1, Source::Held("a".to_owned()), data(4)), (2, transit("a-c~a", Some("a")), data(3))]
    {
        let txn = format!("b-{number}");
        let of = Claim { transit: txn.clone(), txn, ..claim_of("b", &source) };
        for _ in 0..2 {
            assert!(claimed(&stage, &b, &of).await == Ok(Some(expected.clone())), "{source:?}");
        }
    }
    assert_eq!(large(&stage).await, ["b-0-held", "b-1-claim", "b-2-claim"]);

    let take = vec!["b-1".to_owned(), "b-2".to_owned()];
    committed(&stage, &b, &Transaction { take, ..transaction("b", 3, &[]) }).await;
    assert_eq!(large(&stage).await, Vec::<String>::new());
}

#[tokio::test]
async fn gift_unknown_to_stale_server_is_taken_with_its_chunks() {
    let stage = Stage::new().await;
    let (a, b) = (stage.member("a").await, stage.member("b").await);
    stage.tree.fall_behind(b.id());
    let gift = Transaction { give: vec![named("a-g0~b", &vec![7; LARGE])], ..transaction("a", 0, &[]) };
    committed(&stage, &a, &gift).await;
    committed(&stage, &b, &Transaction { take: vec!["a-g0~b".to_owned()], ..transaction("b", 0, &[]) }).await;
    assert_eq!((in_transit(&stage).await, large(&stage).await), (vec![], vec![]));
}

#[tokio::test]
async fn invalid_take_or_gift_is_refused_permanently_with_its_path() {
    for is_over in [false, true] {
        let stage = Stage::new().await;
        let (a, paths) = (stage.member("a").await, stage.attempt(1));
        let first = Transaction { give: vec![named("a-g0~b", b"7")], ..transaction("a", 0, &["x"]) };
        committed(&stage, &a, &first).await;
        if is_over {
            let (path, _) = paths.record_and_number().unwrap();
            let mut record: JobRecord = record::read(path, &a.get(path).await.unwrap().0).unwrap();
            record.attempt = 2;
            a.set(path, &record::write(&record), None).await.unwrap();
        }
        let (before, requests) = (state(&stage).await, stage.tree.requests());
        let next = || transaction("a", 1, &["x", "y"]);
        let not_there = Transaction { take: vec!["b-g0~a".to_owned()], ..next() };
        let there = Transaction { give: vec![named("a-g0~b", b"8")], ..next() };
        let path = |name| paths.transit(name);
        for (wrong, error) in [
            (not_there, Error::NoNode { path: path("b-g0~a") }),
            (there, Error::NodeExists { path: path("a-g0~b") }),
        ] {
            assert!(!error.is_transient());
            let error = if is_over { CommitError::AttemptOver } else { error.into() };
            assert_eq!(commit(&*a, &stage.cluster, &paths, &wrong).await, Err(error));
        }
        let made = stage.tree.requests();
        assert!(made.failed_multis - requests.failed_multis <= 4 && made.reads - requests.reads < 30);
        assert_eq!(state(&stage).await, before);
    }
}

#[tokio::test]
async fn orphans_lists_members_transits_and_holders() {
    let stage = Stage::new().await;
    lose_x_and_y(&stage, b"7").await;
    let a = stage.member("a").await;
    stage.tree.fall_behind(a.id());
    let b = stage.member("b").await;
    let of = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let told =
        Orphans { members: of(&["a", "b"]), transits: of(&["x-g0~y"]), held: of(&["a", "b", "x", "y"]) };
    assert_eq!(orphans(&*a, &stage.cluster, &stage.attempt(1)).await, Ok(told));
    let over = orphans(&*b, &stage.cluster, &stage.attempt(9)).await;
    assert!(matches!(over, Err(Error::NoNode { .. })), "{over:?}");
}

#[tokio::test]
async fn gift_is_taken_although_givers_answer_is_lost() {
    for multis in 1.. {
        let stage = Stage::new().await;
        let (a, b) = (stage.member("a").await, stage.member("b").await);
        let (cluster, attempt) = (stage.cluster.clone(), stage.attempt(1));
        let given = Transaction { give: vec![named("a-g0~b", &vec![7; LARGE])], ..transaction("a", 0, &[]) };
        // The answer is lost.
        committed(&stage, &a, &given).await;
        let take = Transaction { take: vec!["a-g0~b".to_owned()], ..transaction("b", 0, &[]) };
        let (its_cluster, its_attempt) = (cluster.clone(), attempt.clone());
        let taking = async move {
            let taken = commit(&*b, &its_cluster, &its_attempt, &take).await;
            assert_eq!(taken, Ok(Committed::default()));
            Ok(())
        };
        let again = Interrupted::before_multi(&a, multis, taking);
        let told = commit(&again, &cluster, &attempt, &given).await;
        assert!(told.is_ok(), "taken before multi {multis}: {told:?}");
        if !again.is_over() {
            assert!(multis > 3, "only {multis} multis were made");
            return;
        }
    }
}
