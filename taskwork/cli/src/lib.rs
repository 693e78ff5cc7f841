//! The command line of every program: solve a problem here, run a node of a cluster, submit a job to a
//! cluster.
//!
//! ```text
//!   queens solve 12                               on the cores of this machine, without a server
//!   queens solve 20 --state queens.state          the same; after any interruption, the same command continues
//!   queens node --zk zk1:2181,zk2:2181            run a node; start as many as there are machines
//!   queens submit 18 --zk zk1:2181 --wait         submit a job to the nodes, and wait for its end
//! ```
//!
//! A program implements [`Program`], and its `main` calls [`main`]:
//!
//! ```
//! # use serde::{Deserialize, Serialize};
//! # use taskwork::{Context, Outcome, Task};
//! use taskwork::Job;
//! use taskwork_cli::{Failure, Kinds, NoMore, Prepared, Program, Shown};
//!
//! /// Counts the leaves of a binary tree.
//! # #[derive(Serialize, Deserialize)]
//! struct Count {
//!     open: Vec<u32>,
//! }
//! # impl Task for Count {
//! #     type Shared = ();
//! #     type Output = u64;
//! #     fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
//! #         while let Some(height) = self.open.pop() {
//! #             if height == 0 { *cx.output() += 1 } else { self.open.extend([height - 1, height - 1]) }
//! #             cx.potential_split(self);
//! #         }
//! #         Outcome::Complete
//! #     }
//! #     fn split(&mut self, _: &()) -> Option<Self> {
//! #         (self.open.len() > 1).then(|| Count { open: vec![self.open.remove(0)] })
//! #     }
//! # }
//!
//! #[derive(clap::Args)]
//! struct Arguments {
//!     /// The height of the tree.
//!     height: u32,
//! }
//!
//! struct Leaves;
//!
//! impl Program for Leaves {
//!     const NAME: &'static str = "leaves";
//!     const VERSION: &'static str = env!("CARGO_PKG_VERSION");
//!     const ABOUT: &'static str = "Counts the leaves of a binary tree";
//!     type Arguments = Arguments;
//!     type More = NoMore;
//!
//!     fn kinds(kinds: &mut Kinds) {
//!         kinds.add::<Count>("count");
//!     }
//!
//!     fn prepare(arguments: Arguments) -> Result<Prepared, Failure> {
//!         let job = Job::new(Count { open: vec![arguments.height] }, ());
//!         Ok(Prepared::new("count", job, |report| Ok(Shown::done(format!("{} leaves", report.output), report.output))))
//!     }
//! }
//!
//! // fn main() -> std::process::ExitCode { taskwork_cli::main::<Leaves>() }
//! # let code = taskwork_cli::run::<Leaves>(["leaves", "solve", "10", "--quiet"]);
//! # assert_eq!(format!("{code:?}"), format!("{:?}", std::process::ExitCode::SUCCESS));
//! ```
//!
//! Standard output is for answers. If it cannot be written, because the disk is full for example, the command reports
//! that and its exit code is not 0; a closed pipe (`… | head`) is no error.
//!
//! The exit code is 0 for success, 1 if the job failed or was stopped, 2 for wrong usage or input, 3 if the cluster
//! could not be reached, 4 if a node's drain deadline passed before it had transferred all its tasks, 5 if there is no
//! such cluster, job or node, and 130 if Ctrl-C interrupted the command.

pub mod printable;
mod failure;
mod program;
mod prepared;
mod build;
mod target;
mod interrupts;
mod log;
mod job_log;
mod watch;
mod manual;
mod version;
mod outputs;
mod solve;
mod preemption;
mod node;
mod naming;
mod submit;
#[cfg(feature = "health")]
mod health;
#[cfg(feature = "health")]
pub mod web;
pub mod command;

pub use self::{
    failure::{Failure, note, print},
    job_log::{LogColumn, ProgressDisplay},
    outputs::{check_outputs, is_same_file, write_output},
    prepared::{Prepared, Shown},
    program::{NoMore, Program, main, run},
};
pub use taskwork::node::Kinds;

/// Parses a text as each kind of option value. For the fuzzer: it must not panic.
#[doc(hidden)]
pub fn check_arguments(text: &str) {
    let _ = target::seconds(text);
    let _ = job_log::interval(text);
    let _ = target::time(text);
    preemption::check(text);
    let _ = text.parse::<taskwork::node::Address>();
}
