//! A program without a command line: two nodes within its own process, three jobs on a real ZooKeeper, typed
//! results.
//!
//! ```text
//! cargo run --release -p taskwork --example client -- localhost:2181
//! ```

use std::{error::Error, time::Duration};

use serde::{Deserialize, Serialize};
use taskwork::{Client, Context, Job, Node, Outcome, Release, Task};

/// Counts the leaves of a binary tree.
#[derive(Serialize, Deserialize)]
struct Count {
    /// The heights of the subtrees still to be counted.
    open: Vec<u32>,
}

impl Task for Count {
    type Shared = ();
    type Output = u64;

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        while !self.open.is_empty() {
            if cx.migrate() {
                return Outcome::Migrate;
            }
            match self.open.pop() {
                Some(0) => {
                    *cx.output() += 1;
                    cx.worked(1);
                }
                Some(height) => self.open.extend([height - 1, height - 1]),
                None => {}
            }
            cx.potential_split(self);
        }
        Outcome::Complete
    }

    /// Splits off the largest open subtree, the one at the bottom of the stack.
    fn split(&mut self, (): &()) -> Option<Self> {
        (self.open.len() > 1).then(|| Count { open: vec![self.open.remove(0)] })
    }
}

fn leaves(height: u32) -> Job<Count> {
    Job::new(Count { open: vec![height] }, ()).name(format!("leaves {height}"))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let zookeeper = std::env::args().nth(1).unwrap_or_else(|| "localhost:2181".to_owned());
    let release = Release::this_build("client-example", "1")?;
    let client = Client::builder(zookeeper).cluster("client-example").release(release).connect().await?;

    let mut nodes = Vec::new();
    for _ in 0..2 {
        nodes.push(Node::builder(&client).task::<Count>().workers(1).serve()?);
    }

    // The nodes work on all of them, and divide their workers.
    let counted = client.submit(leaves(20)).await?;
    let watched = client.submit(leaves(26)).await?;
    let cancelled = client.submit(leaves(60)).await?;

    println!("job {}: {} leaves", counted.id(), counted.result().await?.output);

    let mut progress = watched.progress(Duration::from_millis(500));
    while let Some(progress) = progress.next().await {
        let progress = progress?;
        println!("job {}: {} leaves after {:.1?}", watched.id(), progress.figures.worked, progress.elapsed);
    }
    println!("job {}: {} leaves", watched.id(), watched.result().await?.output);

    cancelled.cancel("it would take years").await?;
    let report = cancelled.result().await?;
    println!("job {}: finished: {}", cancelled.id(), report.finished);

    for node in &mut nodes {
        node.drain();
        node.ended().await?;
    }
    client.close().await;
    Ok(())
}
