//! An elastic task-pool runtime for hard tree searches, after the paper TASKWORK (Kehrer and Blochinger,
//! 2019).
//!
//! You write **two operations** on a piece of work: [`search`](Task::search), which performs it, and
//! [`split`](Task::split), which removes a part of it as a new task. The runtime does the rest. A task is
//! split only when a worker or another node needs work, so that there are hardly more tasks than processors;
//! a node without work steals from another; all nodes share the incumbent; and the job is done exactly when
//! every task is accounted for.
//!
//! # A program
//!
//! In how many ways can eight queens be placed on a chessboard so that none attacks another?
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use taskwork::{Context, Job, Outcome, Task};
//!
//! /// Boards that are filled from the top, row by row.
//! #[derive(Serialize, Deserialize)]
//! struct Queens {
//!     open: Vec<Board>,
//! }
//!
//! /// The columns and the two diagonals that are attacked in the next row.
//! #[derive(Serialize, Deserialize)]
//! struct Board {
//!     columns: u32,
//!     left: u32,
//!     right: u32,
//! }
//!
//! impl Task for Queens {
//!     type Shared = u32; // the size of the board
//!     type Output = u64; // the number of solutions
//!
//!     fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
//!         let all = (1 << *cx.shared()) - 1;
//!         while !self.open.is_empty() {
//!             if cx.migrate() {
//!                 return Outcome::Migrate; // the runtime writes the rest, or moves it to another node
//!             }
//!             let Some(Board { columns, left, right }) = self.open.pop() else { break };
//!             if columns == all {
//!                 *cx.output() += 1;
//!             }
//!             let mut free = all & !(columns | left | right);
//!             while free != 0 {
//!                 let queen = free & free.wrapping_neg();
//!                 free ^= queen;
//!                 self.open.push(Board { columns: columns | queen, left: (left | queen) << 1, right: (right | queen) >> 1 });
//!             }
//!             cx.potential_split(self); // if a worker needs a task, `split` is called
//!         }
//!         Outcome::Complete
//!     }
//!
//!     fn split(&mut self, _size: &u32) -> Option<Self> {
//!         // The board at the bottom has the fewest queens and the most work below it.
//!         (self.open.len() > 1).then(|| Queens { open: vec![self.open.remove(0)] })
//!     }
//! }
//!
//! let empty = Board { columns: 0, left: 0, right: 0 };
//! let report = Job::new(Queens { open: vec![empty] }, 8).run()?;
//! assert_eq!(report.output, 92);
//! # Ok::<(), taskwork::JobError>(())
//! ```
//!
//! [`Job`] runs on all cores of this machine. `.nodes(4)` runs it on four nodes within the process, each with
//! its own pool, which communicate by the full protocol.
//!
//! # The interface of a task
//!
//! | in `search` | purpose | cost if there is nothing to do |
//! |---|---|---|
//! | [`Context::migrate`] | returns whether the task should stop here, to be moved or, about once a second, to be written | one load |
//! | [`Context::potential_split`] | marks a point where a part of the task could be split off | one load |
//! | [`Context::get_var`], [`set_var`](Context::set_var) | the [`Variable`]s that all tasks share, such as the best solution | one load, one compare |
//! | [`Context::output`] | the output of this task: an [`Output`], merged exactly once | nothing |
//! | [`Context::companion`] | the framework's [`Companion`](companion::Companion) on this node, if it has one | nothing |
//! | [`Context::spawn`] | creates a child task for a part of the work; [`Outcome::Wait`] waits for all spawned tasks | |
//! | [`Context::waker`] | lets an external event end the task's waiting | |
//!
//! A variable is declared in [`Task::variables`] and only ever improves:
//!
//! ```
//! struct Shortest;
//!
//! impl taskwork::Variable for Shortest {
//!     type Value = (u64, Vec<u32>); // a length and the tour that has it
//!     const NAME: &'static str = "shortest";
//!     fn improves(new: &Self::Value, old: &Self::Value) -> bool {
//!         new.0 < old.0
//!     }
//! }
//! ```
//!
//! [`check()`] compares runs of a small job in which tasks are interrupted, sent and split very often: call it in a
//! unit test.
//!
//! # On a cluster
//!
//! Nodes find each other through ZooKeeper, and exchange tasks directly. Any process can be a node and submit jobs:
//!
//! ```no_run
//! # use serde::{Deserialize, Serialize};
//! # use taskwork::{Context, Outcome, Task};
//! # #[derive(Serialize, Deserialize)]
//! # struct Queens {}
//! # impl Task for Queens {
//! #     type Shared = u32;
//! #     type Output = u64;
//! #     fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome { Outcome::Complete }
//! #     fn split(&mut self, _: &u32) -> Option<Self> { None }
//! # }
//! # async fn example(job: taskwork::Job<Queens>) -> Result<(), Box<dyn std::error::Error>> {
//! use taskwork::{Client, Node, Release};
//!
//! let release = Release::this_build("queens", "1.0")?;
//! let client = Client::builder("zk1:2181,zk2:2181").release(release).connect().await?;
//! let mut node = Node::builder(&client).task::<Queens>().serve()?; // one in each process, at any time
//!
//! println!("{} solutions", client.submit(job).await?.result().await?.output);
//!
//! node.drain(); // its unfinished tasks go to other nodes
//! node.ended().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Nodes work only on jobs of their own [`Release`]: start and submit with the same build. By default a node accepts
//! connections only from its own machine; [`listen`](node::NodeBuilder::listen) sets another address. If a node is
//! lost, the others continue from its last write, about a second earlier, and the result counts each task once.
//!
//! [`client`] describes jobs, progress and cancellation, and [`client::blocking`] works without `async`. With the crate
//! `taskwork-cli` a program has the commands `node` and `submit`; the command `taskwork` shows and controls clusters.
//!
//! # Frameworks
//!
//! Most programs that look for a best solution are shorter with the crate `bnb-framework`, which provides the
//! search loop, the frontier and the incumbent. A framework sets optional functions of its task ([`Hooks`]).
//!
//! # Modules
//!
//! The root has the names that a program with a task needs. The others are in modules:
//!
//! | module | contents |
//! |---|---|
//! | [`client`] | submitting, watching and controlling jobs; the records of a cluster |
//! | [`node`](mod@node) | nodes within a process: settings, addresses, kinds of tasks, health |
//! | [`report`] | results, progress and figures of a job, and its errors |
//! | [`id`] | the names of nodes, tasks, jobs and attempts |
//! | [`check`](mod@check) | tests of a task |
//! | [`companion`], [`display`] | for frameworks: services next to the pool of a job, and the display of its jobs |
//! | [`view`] | for operators: one view of a cluster, computed from events |
//! | [`lowlevel`] | for frameworks and commands: idle workers, suggestions, files, encoding |

mod task;
mod hooks;
mod output;
mod variable;
mod context;
mod idle;
pub mod companion;
mod job;
mod local;
pub mod report;
mod release;
mod state;
pub mod node;
pub mod id;
mod figures;
mod outlook;
mod steps;
mod output_file;
pub mod check;
pub mod display;
pub mod lowlevel;
pub mod view;
mod pool;
mod erased;
mod shell;
mod wire;
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
#[cfg(test)]
mod errors_tests;
#[doc(hidden)]
pub mod benching;
pub mod client;
#[doc(hidden)]
pub mod fuzzing;
#[doc(hidden)]
pub mod simulation;

use taskwork_core::{self as core, config, envelope, holdings, scope, toggles};

pub use crate::{
    check::check,
    client::{Client, ClientError},
    config::Limits,
    context::Context,
    hooks::Hooks,
    id::{JobId, NodeId},
    job::Job,
    node::Node,
    output::Output,
    pool::Waker,
    release::Release,
    report::{JobError, Progress, Report, Stopper},
    state::State,
    task::{Outcome, Task},
    variable::{Score, Variable, Variables},
};
pub use zk::Labels;
