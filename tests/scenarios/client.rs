//! A program without a command line on a real ZooKeeper: the client, and nodes in its own process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bnb_framework::{Solver, cli::ParseProblem as _, lowlevel::SearchTask};
use bnb_problems::knapsack::Knapsack;
use taskwork::{
    Client, ClientError, Job, JobId, Node, Release,
    client::{Connect, ErrorKind, JobState, Stage, blocking},
    node::WORKERS_MAX,
};
use taskwork_tests::{
    cluster::Cluster,
    gate::Gate,
    tree::{Largest, Shape, Tree},
};
use tokio::time::{sleep, timeout};

/// Far longer than any step takes: a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

fn job(depth: u32, spin: u32) -> Job<Tree> {
    Job::new(Tree::root(), Shape { depth, spin, ..Shape::default() })
}

/// A program may wait for its jobs in separate tasks.
fn spawnable<F: Future + Send>(doing: F) -> F {
    doing
}

/// A job that does not end before the gate is open.
fn job_with_gate(depth: u32, gate: &Gate) -> Job<Tree> {
    Job::new(Tree::root(), Shape { depth, gate: Some(gate.clone()), ..Shape::default() })
}

async fn client(cluster: &Cluster) -> Client {
    let release = Release::new("tree-by-library", "1").unwrap();
    Client::builder(cluster.hosts()).cluster("library").release(release).connect().await.unwrap()
}

#[tokio::test]
async fn two_nodes_in_process_complete_three_jobs() {
    let cluster = Cluster::shared().unwrap();
    let client = client(&cluster).await;
    let mut nodes: Vec<Node> =
        (0..2).map(|_| Node::builder(&client).task::<Tree>().workers(1).serve().unwrap()).collect();

    let counted = spawnable(client.submit(job(10, 0).name("counted"))).await.unwrap();
    // All jobs run concurrently.
    let gate = cluster.gate().unwrap();
    let watched = client.submit(job_with_gate(13, &gate)).await.unwrap();
    let endless = client.submit(job(40, 100)).await.unwrap();

    let report = timeout(PATIENCE, spawnable(counted.result())).await.unwrap().unwrap();
    let (count, largest) = Tree::sequential(10);
    assert!(report.finished);
    assert_eq!((report.output, report.var::<Largest>().as_deref()), (count, Some(&largest)));
    assert_eq!(client.record(counted.id()).await.unwrap().name, "counted");

    let (mut last, mut readings) = (0, 0);
    let mut progress = watched.progress(Duration::from_millis(50));
    while let Some(read) = timeout(PATIENCE, spawnable(progress.next())).await.unwrap() {
        let worked = read.unwrap().figures.worked;
        assert!(worked >= last, "{worked} after {last}");
        (last, readings) = (worked, readings + 1);
        gate.open().unwrap();
    }
    assert!(readings > 0, "the first reading arrives at once");
    assert_eq!(timeout(PATIENCE, watched.result()).await.unwrap().unwrap().output, Tree::sequential(13).0);

    timeout(PATIENCE, endless.cancel("enough")).await.unwrap().unwrap();
    let report = timeout(PATIENCE, endless.result()).await.unwrap().unwrap();
    assert!(!report.finished);
    let again = client.cancel(endless.id(), "once more").await.unwrap_err();
    assert!(matches!(again, ClientError::WrongState { .. }) && again.kind() == ErrorKind::Failed, "{again}");

    let overview = client.overview().await.unwrap();
    assert_eq!(overview.members.len(), 2);
    let stages: Vec<Stage> = overview.jobs.iter().map(|job| job.stage).collect();
    assert_eq!(stages, [Stage::Done, Stage::Done, Stage::Cancelled]);
    // A job can be found again by its id alone, with its type.
    let found = client.submitted::<Tree>(counted.id()).await.unwrap();
    assert_eq!(timeout(PATIENCE, found).await.unwrap().unwrap().output, count);
    let refused = client.submitted::<SearchTask<Knapsack>>(counted.id()).await.unwrap_err();
    assert!(refused.to_string().contains("has tasks of type"), "{refused}");
    let details = client.job(counted.id()).await.unwrap();
    assert_eq!(
        (details.stage, details.record.state, details.open_tasks),
        (Stage::Done, JobState::Done, None)
    );

    for node in &mut nodes {
        node.drain();
        timeout(PATIENCE, node.ended()).await.unwrap().unwrap();
        assert!(node.has_ended());
        timeout(PATIENCE, node.ended()).await.unwrap().unwrap();
    }
    assert_eq!(client.overview().await.unwrap().members.len(), 0, "all nodes have left cleanly");
    client.close().await;
}

/// Waits until a job has no tasks left, and is at this stage.
async fn without_tasks(client: &Client, job: &JobId, stage: Stage) {
    let waiting = async {
        loop {
            let details = client.job(job).await.unwrap();
            if details.open_tasks == Some(0) && details.stage == stage {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, waiting).await.unwrap();
}

#[tokio::test]
async fn open_job_accepts_tasks_until_finished() {
    let cluster = Cluster::shared().unwrap();
    let client = client(&cluster).await;
    let node = || Node::builder(&client).task::<Tree>().workers(1).serve().unwrap();
    let mut nodes = vec![node(), node()];
    let service = client.submit(job(10, 0).stay_open()).await.unwrap();
    without_tasks(&client, service.id(), Stage::Running).await;
    let first = service.add(Tree::root()).await.unwrap();
    assert_ne!(first, service.add(Tree::root()).await.unwrap());
    without_tasks(&client, service.id(), Stage::Running).await;
    // It waits without nodes, and while it is suspended.
    for node in &mut nodes {
        node.drain();
        timeout(PATIENCE, node.ended()).await.unwrap().unwrap();
    }
    service.add(Tree::root()).await.unwrap();
    service.suspend().await.unwrap();
    service.add(Tree::root()).await.unwrap();
    nodes = vec![node()];
    let found = client.submitted::<Tree>(service.id()).await.unwrap();
    found.resume().await.unwrap();
    without_tasks(&client, service.id(), Stage::Running).await;
    found.add(Tree::root()).await.unwrap();
    found.finish().await.unwrap();
    let report = timeout(PATIENCE, service.result()).await.unwrap().unwrap();
    assert_eq!((report.finished, report.output), (true, 6 * Tree::sequential(10).0));
    let refused = service.add(Tree::root()).await.unwrap_err();
    assert!(refused.to_string().contains("accepts no task: it is over"), "{refused}");

    let gate = cluster.gate().unwrap();
    let plain = client.submit(job_with_gate(10, &gate)).await.unwrap();
    let refused = plain.finish().await.unwrap_err();
    assert!(refused.to_string().contains("not submitted as one that stays open"), "{refused}");
    let refused = plain.add(Tree::root()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Failed, "{refused}");
    nodes[0].drain();
    timeout(PATIENCE, nodes[0].ended()).await.unwrap().unwrap();
    client.close().await;
}

#[tokio::test]
async fn invalid_use_of_client_is_refused_with_reason() {
    let cluster = Cluster::shared().unwrap();
    let looking = Client::builder(cluster.hosts()).cluster("library").connect().await.unwrap();
    let refused = looking.overview().await.unwrap_err();
    assert!(matches!(refused, ClientError::NoCluster { .. }), "{refused}");
    let refused = looking.submit(job(3, 0)).await.unwrap_err();
    assert!(refused.to_string().contains("release"), "{refused}");
    let refused = Node::builder(&looking).task::<Tree>().serve().unwrap_err();
    assert!(refused.to_string().contains("release"), "{refused}");

    let client = client(&cluster).await;
    for name in ["", "two\nlines", &"n".repeat(201)] {
        let refused = client.submit(job(3, 0).name(name)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Usage, "{refused}");
    }
    let submitted = client.submit(job(3, 0)).await.unwrap();
    let nobody = "j-0000000099".parse::<JobId>().unwrap();
    let refused = client.submitted::<Tree>(&nobody).await.unwrap_err();
    assert!(matches!(&refused, ClientError::NoJob { job, .. } if *job == nobody), "{refused}");

    let node = || Node::builder(&client).task::<Tree>();
    let many = node().workers(WORKERS_MAX + 1).serve().unwrap_err();
    assert!(many.to_string().contains("1 to"), "{many}");
    let seen = node().listen("0.0.0.0:0".parse().unwrap()).serve().unwrap_err();
    assert!(seen.to_string().contains("without credentials"), "{seen}");
    assert!(Node::builder(&client).serve().unwrap_err().to_string().contains("type of task"));

    // It is forgotten while a client waits for it: an error, not a partial report.
    client.cancel(submitted.id(), "nobody runs it").await.unwrap();
    let refused = client.suspend(submitted.id()).await.unwrap_err();
    assert!(matches!(refused, ClientError::WrongState { .. }), "{refused}");
    client.forget(std::slice::from_ref(submitted.id()), false).await.unwrap();
    let gone = timeout(PATIENCE, submitted.result()).await.unwrap().unwrap_err();
    assert!(matches!(gone, ClientError::Forgotten { .. }), "{gone}");
    client.close().await;
    looking.close().await;
}

#[tokio::test]
async fn dropped_node_is_lost_and_others_continue_its_written_work() {
    let cluster = Cluster::shared().unwrap();
    let mut connect = Connect::new(cluster.hosts());
    connect.session_timeout = Duration::from_secs(2);
    let release = Release::new("tree-by-library", "1").unwrap();
    let client = Client::builder_of(connect).release(release).connect().await.unwrap();
    let serve = || Node::builder(&client).task::<Tree>().workers(1).serve().unwrap();
    let (mut stays, goes) = (serve(), serve());
    let gate = cluster.gate().unwrap();
    let submitted = client.submit(job_with_gate(18, &gate)).await.unwrap();
    let both_work = async {
        let mut progress = submitted.progress(Duration::from_millis(20));
        while progress.next().await.unwrap().unwrap().figures.steals == 0 {}
    };
    timeout(PATIENCE, both_work).await.unwrap();
    drop(goes);
    gate.open().unwrap();
    let report = timeout(PATIENCE, submitted.result()).await.unwrap().unwrap();
    assert_eq!(report.output, Tree::sequential(18).0);
    let record = client.record(submitted.id()).await.unwrap();
    assert_eq!((record.attempt, record.lost.len()), (1, 0), "{record:?}");
    stays.drain();
    timeout(PATIENCE, stays.ended()).await.unwrap().unwrap();
    client.close().await;
}

#[tokio::test]
async fn search_is_solved_by_nodes_with_its_type() {
    let cluster = Cluster::shared().unwrap();
    let client = client(&cluster).await;
    let mut node = Node::builder(&client).task::<SearchTask<Knapsack>>().workers(2).serve().unwrap();
    let text = "5 10\n10 5\n40 4\n30 6\n50 3\n35 7\n";
    let knapsack = || Knapsack::read("six items", text).unwrap();
    let here = Solver::new(knapsack()).run().unwrap();
    let told = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&told);
    let solver = Solver::new(knapsack());
    let solver = solver.on_progress(Duration::from_millis(5), move |_| _ = seen.fetch_add(1, SeqCst));
    let mut search = solver.submit(&client).await.unwrap();
    let there = timeout(PATIENCE, Box::pin(search.solved())).await.unwrap().unwrap();
    assert!(there.proven && there.best.is_some(), "{there:?}");
    assert_eq!(there.best.map(|best| best.cost), here.best.map(|best| best.cost));
    assert!(told.load(SeqCst) > 0, "the observer is notified");

    let refused = Solver::new(knapsack()).workers(2).submit(&client).await.unwrap_err();
    assert!(refused.to_string().contains("a cluster has its own"), "{refused}");

    // No node works on it: the stopper ends it nevertheless.
    node.drain();
    timeout(PATIENCE, node.ended()).await.unwrap().unwrap();
    let solver = Solver::new(knapsack());
    let stopper = solver.stopper();
    let search = solver.submit(&client).await.unwrap();
    stopper.stop();
    let stopped = timeout(PATIENCE, search).await.unwrap().unwrap();
    assert!(!stopped.proven, "{stopped:?}");
    client.close().await;
}

#[test]
fn blocking_client_works_without_runtime() {
    let cluster = Cluster::shared().unwrap();
    let release = Release::new("tree-by-library", "1").unwrap();
    let client = blocking::Client::connect(Client::builder(cluster.hosts()).release(release)).unwrap();
    let mut node = client.serve(Node::builder(client.inner()).task::<Tree>().workers(2)).unwrap();
    let gate = cluster.gate().unwrap();
    let submitted = client.submit(job_with_gate(11, &gate)).unwrap();
    let readings = Arc::new(AtomicUsize::new(0));
    submitted
        .watch(Duration::from_millis(20), |_| {
            readings.fetch_add(1, SeqCst);
            gate.open().unwrap();
        })
        .unwrap();
    assert_eq!(submitted.result().unwrap().output, Tree::sequential(11).0);
    assert!(readings.load(SeqCst) > 0);
    node.drain();
    node.ended().unwrap();
    client.close();
}
