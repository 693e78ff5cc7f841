//! All parsers of external input, on arbitrary bytes: none may panic, use excessive memory, or read its own
//! output as something else.
//!
//! Each function is a target of `cargo fuzz` (`cargo xtask fuzz` runs them all). The tests run it on the
//! files in `corpus/`, and on random modifications of them.

mod view;

use std::sync::Arc;

use bnb_framework::{Problem, cli::ParseProblem as _, sequential};
use bnb_problems::{flowshop, knapsack::Knapsack, maxclique, qap::Qap};
use taskwork::{NodeId, fuzzing, id::TaskId};
use tsp_example::{
    instance::City,
    read::{parse_instance, parse_tour, write_tour},
};
use zk::{
    ClusterPaths, Connect, CreateMode, Credentials, MemoryStore, MemoryTree, Store,
    accounting::Source,
    figures, is_name, job,
    journal::{self, Writer},
    membership,
    question::Questions,
};

pub use self::view::view;

/// Parses a message between nodes or a letter: bytes from a peer, or from anyone who can write to the tree.
pub fn wire(bytes: &[u8]) {
    fuzzing::check_wire(bytes);
}

/// Parses a message between the companions of a workflow: bytes from a peer.
pub fn workflows(bytes: &[u8]) {
    let _ = dataflow_framework::fuzzing::check_wire(bytes);
}

/// Parses a file of the TSP example, in TSPLIB's format or another: an instance, and a tour of its cities.
///
/// # Panics
/// If the parsed value does not survive being written and read again.
pub fn tsplib(bytes: &[u8]) {
    // An instance contains its matrix, so a short file may require a large one; such files are skipped here.
    if asks_for_many_cities(bytes) {
        return;
    }
    if let Ok(instance) = parse_instance("fuzzed", bytes) {
        assert!(!instance.is_empty(), "there is at least one city");
        let first: Vec<City> = (0..instance.len()).collect();
        let written = write_tour(&instance, &first);
        let read = parse_tour("written", written.as_bytes(), instance.len());
        assert_eq!(read.ok(), Some(first), "a tour reads back as it is written");
    }
    let _ = parse_tour("fuzzed", bytes, 16);
}

/// Parses a file of coordinates, one pair per line, with the same parser, which detects CSV by the first
/// line.
pub fn csv(bytes: &[u8]) {
    let line = [b"a,1,2\n", bytes].concat();
    if bytes.len() < CSV_BYTES_MAX {
        let _ = parse_instance("fuzzed", &line);
    }
}

/// A file of this length, in bytes, has a few hundred cities at most.
const CSV_BYTES_MAX: usize = 4 << 10;

/// Returns whether a file contains a number that would be a large number of cities.
fn asks_for_many_cities(bytes: &[u8]) -> bool {
    let digits = |byte: &u8| !byte.is_ascii_digit();
    bytes.split(digits).any(|number| number.len() > 3)
}

/// Parses a file of one of the problems of `bnb-problems`, or of a directed tour, depending on the first
/// byte. A small instance is also solved.
///
/// # Panics
/// If the solution found does not have its cost, or another order of the search finds a better one.
pub fn instances(bytes: &[u8]) {
    let Some((&which, bytes)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(bytes);
    if asks_for_many_cities(bytes) || bytes.len() > INSTANCE_BYTES_MAX {
        return;
    }
    match which % 10 {
        0 | 1 => {
            let Ok(graph) = maxclique::parse("fuzzed", &text) else { return };
            if graph.vertices() > 16 {
                return;
            }
            let plain = maxclique::MaxClique::<1, false>::new(graph.clone());
            solve_pruned(&plain.expect("16 vertices have room"));
            let weighted = maxclique::MaxClique::<1, true>::new(graph);
            solve_pruned(&weighted.expect("16 vertices have room"));
        }
        2 | 3 => {
            // Each item is on a separate line.
            if let Some(items) = Knapsack::read("fuzzed", &text).ok().filter(|_| text.lines().count() <= 12) {
                solve(&items);
            }
        }
        4 | 5 => {
            if let Some(qap) = Qap::read("fuzzed", &text).ok().filter(|_| first_number(&text) <= 5) {
                solve_pruned(&qap);
            }
        }
        6 | 7 => {
            if let Some(shop) = flowshop::parse("fuzzed", &text, 1).ok().filter(|_| first_number(&text) <= 5)
            {
                solve(&shop);
            }
        }
        _ => {
            let instance = parse_instance("fuzzed", text.as_bytes()).ok();
            if let Some(instance) = instance.filter(|instance| instance.len() <= 6) {
                solve(&tsp_example::directed::DirectedProblem::new(instance));
            }
        }
    }
}

/// A file of this length, in bytes, is no large instance.
const INSTANCE_BYTES_MAX: usize = 2 << 10;

/// Returns the size of an instance, which some formats give as the first number.
fn first_number(text: &str) -> u64 {
    text.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or(0)
}

/// Checks that a search finds the same with and without pruning.
fn solve<P: Problem>(problem: &P) {
    let whole = sequential::solve(problem, false, None).best;
    assert_eq!(solve_pruned(problem), whole.map(|best| best.cost));
}

/// Checks that a search with pruning finds a solution of the cost that it reports, and returns the cost. A search that
/// is limited by bounds alone has no other form.
fn solve_pruned<P: Problem>(problem: &P) -> Option<P::Cost> {
    let found = sequential::solve(problem, true, None).best?;
    assert_eq!(problem.cost_of(&found.solution), Some(found.cost), "the reported cost is wrong");
    Some(found.cost)
}

/// Parses names that users choose, and that become part of znodes.
///
/// # Panics
/// If a name changes when it is read back, or a password is printed.
pub fn names(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(node) = text.parse::<NodeId>() {
        assert_eq!(node.to_string().parse(), Ok(node));
    }
    if let Ok(task) = text.parse::<TaskId>() {
        assert_eq!(task.to_string().parse(), Ok(task));
    }
    if let Ok(cluster) = ClusterPaths::new(text) {
        assert!(is_name(text) && cluster.name() == text && !text.contains('/'));
    }
    let _ = Connect::new(text).check_hosts();
    if let Some(credentials) = Credentials::parse(text) {
        assert!(!format!("{credentials:?}").contains(text), "a password is not shown");
    }
    taskwork_cli::check_arguments(text);
}

/// Reads znodes with contents and names as anyone with the password could write them.
///
/// # Panics
/// If an empty tree cannot be prepared.
pub fn znodes(bytes: &[u8]) {
    let Some((&place, content)) = bytes.split_first() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime of one thread");
    runtime.block_on(read_znodes(place, content));
}

async fn read_znodes(place: u8, content: &[u8]) {
    let (tree, cluster) = (MemoryTree::new(), ClusterPaths::new("fuzzed").expect("the name is well formed"));
    let store = tree.connect();
    cluster.prepare(&*store).await.expect("an empty tree can be prepared");
    let paths = cluster.job("j-0000000000");
    for path in [paths.record(), paths.attempts(), paths.figures(), paths.vars()] {
        put(&*store, &path, b"").await;
    }
    let attempt = paths.attempt(1);
    for path in [
        attempt.base(),
        attempt.outputs(),
        attempt.parked(),
        attempt.left(),
        attempt.txns(),
        attempt.large(),
        attempt.held(),
        attempt.transits(),
    ] {
        put(&*store, &path, b"").await;
    }
    let name = String::from_utf8_lossy(content).into_owned();
    match place % 14 {
        0 => put(&*store, &paths.record(), content).await,
        1 => put(&*store, &cluster.member("n0000000000000001"), content).await,
        2 => put(&*store, &paths.node_figures("n0000000000000001"), content).await,
        3 => put(&*store, &attempt.output("n0000000000000001"), content).await,
        4 => put(&*store, &paths.result(), content).await,
        5 => put(&*store, &attempt.parked_task("n0000000000000000-0"), content).await,
        6 => put(&*store, &format!("{}/{name}", cluster.election()), b"").await,
        7 => put(&*store, &attempt.held_by("n0000000000000002"), content).await,
        8 => put(&*store, &attempt.transit("n0000000000000002-g1~n0000000000000003"), content).await,
        9 => put(&*store, &cluster.member(&name), content).await,
        10 => put(&*store, &paths.journal(), content).await,
        11 => put_in(&*store, &paths.journal(), &paths.journal_entry(0), content).await,
        12 => put_in(&*store, &paths.journal(), &paths.journal_note(), content).await,
        _ => put_in(&*store, &paths.questions(), &paths.question("q-fuzzed"), content).await,
    }
    let _ = membership::list(&*store, &cluster).await;
    let _ = job::read(&*store, &cluster, "j-0000000000").await;
    let _ = job::list(&*store, &cluster).await;
    let _ = job::shared(&*store, &cluster, "j-0000000000").await;
    let _ = job::outputs(&*store, &attempt).await;
    let _ = job::result(&*store, &cluster, "j-0000000000").await;
    let _ = job::lost(&*store, &cluster, &attempt).await;
    let _ = zk::election::leaders(&*store, &cluster).await;
    let _ = figures::read::<serde_json::Value>(&*store, &cluster, "j-0000000000").await;
    let source = match place % 3 {
        0 => Source::Parked("n0000000000000000-0".to_owned()),
        1 => Source::Held("n0000000000000002".to_owned()),
        _ => Source::Transit { name: "n0000000000000002-g1~n0000000000000003".to_owned(), gone: None },
    };
    let claim = zk::accounting::Claim {
        enrol: None,
        node: "n0000000000000001".to_owned(),
        txn: "n0000000000000001-0".to_owned(),
        settled: None,
        source,
        transit: "n0000000000000001-c0~n0000000000000001".to_owned(),
    };
    let claimed = zk::accounting::claim(&*store, &cluster, &attempt, &claim, &Some).await;
    if let Ok(Some(content)) = claimed {
        fuzzing::check_wire(&content);
    }
    let _ = zk::accounting::held(&*store, &attempt, "n0000000000000002").await;
    let _ = zk::accounting::orphans(&*store, &cluster, &attempt).await;
    read_for_companions(&store, &cluster).await;
    let _ = job::forget(&*store, &cluster, "j-0000000000").await;
}

/// Reads the data of a job for its companions.
async fn read_for_companions(store: &Arc<MemoryStore>, cluster: &ClusterPaths) {
    let writer = Writer { node: "n0000000000000001".to_owned(), attempt: 1, generation: 1 };
    put(&**store, &cluster.member(&writer.node), b"").await;
    let _ = journal::take(&**store, cluster, "j-0000000000", &writer, "key").await;
    let mut questions = Questions::new(store.clone(), cluster.clone(), "j-0000000000");
    // Without a question that can be read it waits for one.
    tokio::select! {
        biased;
        _ = questions.next() => {}
        () = std::future::ready(()) => {}
    }
}

/// Puts a znode into a folder, which is put first.
async fn put_in(store: &dyn Store, folder: &str, path: &str, content: &[u8]) {
    put(store, folder, b"").await;
    put(store, path, content).await;
}

/// Creates a znode, or sets it, if a tree can hold it.
async fn put(store: &dyn Store, path: &str, content: &[u8]) {
    if store.create(path, content, CreateMode::Persistent).await.is_err() {
        let _ = store.set(path, content, None).await;
    }
}
