//! Everything that comes from outside, given anything at all: nothing may panic, take more than its share of
//! memory, or be read as something other than what is written back.
//!
//! Each function is a target of `cargo fuzz` (`cargo xtask fuzz` runs them all), and is run in the tests on
//! what is kept in `corpus/`, and on what becomes of that by chance.

use bnb_framework::{Problem, cli::ParseProblem as _, sequential};
use bnb_problems::{flowshop, knapsack::Knapsack, maxclique, qap::Qap};
use taskwork::{NodeId, TaskId, simulation};
use tsp_example::{
    instance::City,
    read::{parse_instance, parse_tour, write_tour},
};
use zk::{
    ClusterPaths, Connect, CreateMode, Credentials, MemoryTree, Store, figures, is_name, job, membership,
};

/// A message between nodes, or a letter: bytes that a peer, or whoever can write to the tree, has sent.
pub fn wire(bytes: &[u8]) {
    simulation::check_wire(bytes);
}

/// A file of the TSP example, in TSPLIB's format or another: an instance, and a tour of its cities.
///
/// # Panics
/// If what was read does not read back as it is written.
pub fn tsplib(bytes: &[u8]) {
    // An instance has its matrix, so a short file may ask for a large one: what is not read is not asked for
    // here.
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

/// A file of coordinates, a line each: the same reader, which takes it for CSV by its first line.
pub fn csv(bytes: &[u8]) {
    let line = [b"a,1,2\n", bytes].concat();
    if bytes.len() < CSV_BYTES_MAX {
        let _ = parse_instance("fuzzed", &line);
    }
}

/// So long a file has a few hundred cities at most.
const CSV_BYTES_MAX: usize = 4 << 10;

/// Whether a file has a number in it that is large as a number of cities.
fn asks_for_many_cities(bytes: &[u8]) -> bool {
    let digits = |byte: &u8| !byte.is_ascii_digit();
    bytes.split(digits).any(|number| number.len() > 3)
}

/// A file of one of the problems of `bnb-problems`, or of a directed tour; the first byte says of which. What
/// is read is solved, if it is small.
///
/// # Panics
/// If what is found is no solution of its cost, or another order of the search finds a better one.
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
            solve(&plain.expect("16 vertices have room"));
            let weighted = maxclique::MaxClique::<1, true>::new(graph);
            solve(&weighted.expect("16 vertices have room"));
        }
        2 | 3 => {
            // Each item stands on a line of its own.
            if let Some(items) = Knapsack::read("fuzzed", &text).ok().filter(|_| text.lines().count() <= 12) {
                solve(&items);
            }
        }
        4 | 5 => {
            if let Some(qap) = Qap::read("fuzzed", &text).ok().filter(|_| first_number(&text) <= 5) {
                solve(&qap);
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

/// So long a file is no large instance.
const INSTANCE_BYTES_MAX: usize = 2 << 10;

/// The size of an instance: in some formats the first number.
fn first_number(text: &str) -> u64 {
    text.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or(0)
}

/// With pruning and without, the same is found.
fn solve<P: Problem>(problem: &P) {
    let pruned = sequential::solve(problem, true, None).best;
    if let Some(found) = &pruned {
        assert_eq!(
            problem.cost_of(&found.solution),
            Some(found.cost),
            "what is found is what it is said to be"
        );
    }
    // What stops short at bounds cannot do without them.
    if P::EVERY_SOLUTION {
        let whole = sequential::solve(problem, false, None).best;
        assert_eq!(pruned.map(|best| best.cost), whole.map(|best| best.cost));
    }
}

/// Names that users give, and that stand in znodes.
///
/// # Panics
/// If a name is another when it is read back, or a password is shown.
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

/// Contents of znodes, and their names, as somebody with the password could write them.
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
    for path in
        [attempt.base(), attempt.outputs(), attempt.parked(), attempt.left(), attempt.txns(), attempt.large()]
    {
        put(&*store, &path, b"").await;
    }
    let name = String::from_utf8_lossy(content).into_owned();
    match place % 8 {
        0 => put(&*store, &paths.record(), content).await,
        1 => put(&*store, &cluster.member("n0000000000000001"), content).await,
        2 => put(&*store, &paths.node_figures("n0000000000000001"), content).await,
        3 => put(&*store, &attempt.output("n0000000000000001"), content).await,
        4 => put(&*store, &paths.result(), content).await,
        5 => put(&*store, &attempt.parked_task("n0000000000000000-0"), content).await,
        6 => put(&*store, &format!("{}/{name}", cluster.election()), b"").await,
        _ => put(&*store, &cluster.member(&name), content).await,
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
    let claim = zk::accounting::Claim {
        enrol: false,
        node: "n0000000000000001".to_owned(),
        txn: "n0000000000000001-0".to_owned(),
        settled: None,
        task: "n0000000000000000-0".to_owned(),
    };
    if let Ok(Some(envelope)) = zk::accounting::claim(&*store, &cluster, &attempt, &claim).await {
        simulation::check_wire(&envelope);
    }
    let _ = job::forget(&*store, &cluster, "j-0000000000").await;
}

/// Creates a znode, or sets it. What no tree can hold is not put there.
async fn put(store: &dyn Store, path: &str, content: &[u8]) {
    if store.create(path, content, CreateMode::Persistent).await.is_err() {
        let _ = store.set(path, content, None).await;
    }
}
