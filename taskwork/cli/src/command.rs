//! Options, output, interrupts and exit codes, shared with other commands for clusters such as the operator's
//! `taskwork`.

#[cfg(feature = "man")]
pub use crate::manual::Man;
pub use crate::{
    build::BuildArguments,
    failure::{print, tell},
    interrupts::{Endings, Notes, interruptible},
    log::{Level, LogArguments},
    manual::{Completions, completions, with_notes},
    naming::submitter,
    node::{Arguments as NodeArguments, node_labels, run as run_node},
    preemption::{Notice, Notices, Source as NoticeSource, lead as notice_lead, source as notice_source},
    program::{ended, not_parsed},
    submit::goes_on,
    target::{ClusterArguments, Patience, job_id, runtime, seconds, time},
};
