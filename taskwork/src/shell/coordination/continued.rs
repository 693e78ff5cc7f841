//! Timeline entries about work that this node continues for lost nodes.

use zk::{AttemptPaths, Store as _};

use super::Coordination;
use crate::{
    holdings::{Holdings, Source, Transit},
    id::NodeId,
    shell::clock::unix_ms,
};

impl Coordination {
    /// Returns the age in milliseconds of the last write of a lost node's holdings, as far as the clocks agree.
    /// `None` for other sources and if the age is unknown: a claim does not depend on it.
    pub(super) async fn written_before(&self, attempt: &AttemptPaths, source: Source) -> Option<u64> {
        let Source::Held(node) = source else { return None };
        let stat = self.store.exists(&attempt.held_by(&node.to_string())).await.ok()??;
        (stat.modified_ms > 0).then(|| unix_ms().saturating_sub(stat.modified_ms))
    }
}

/// The last write of a lost node's holdings. Work done after it is repeated.
#[derive(Debug, Clone, Copy)]
pub(super) enum LastWritten {
    Unknown,
    /// Milliseconds before the claim. The node may have been lost at any time in between.
    MsAgo(u64),
    /// Immediately before one of its tasks panicked.
    BeforePanic,
}

/// Describes the claimed work of a lost node; `None` if no lost node was involved.
pub(super) fn continued(
    me: NodeId,
    source: Source,
    holdings: &Holdings,
    last_written: LastWritten,
) -> Option<String> {
    let Holdings { tasks, owed, .. } = holdings;
    if tasks.is_empty() && owed.is_empty() {
        return None;
    }
    let count = match tasks.len() {
        1 => "1 task".to_owned(),
        count => format!("{count} tasks"),
    };
    match source {
        Source::Held(node) => {
            let written = match last_written {
                LastWritten::Unknown => String::new(),
                LastWritten::BeforePanic => ", written before a task panicked there".to_owned(),
                LastWritten::MsAgo(ms) => format!(", written {}.{} s earlier", ms / 1_000, ms % 1_000 / 100),
            };
            Some(format!("{count} of {node}{written}"))
        }
        // Work that a thief refused, or that a node parked when it left, was not lost.
        Source::Parked(_) | Source::Returned(_) => None,
        Source::Transit(Transit { from, to, .. }) if to == me => {
            Some(format!("{count} of {from} that were on their way to this node"))
        }
        Source::Transit(Transit { to, .. }) => Some(format!("{count} that were on their way to {to}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        envelope::{Blob, Envelope},
        id::TaskId,
    };

    const ME: NodeId = NodeId(1);
    const LOST: NodeId = NodeId(2);
    const OTHER: NodeId = NodeId(3);

    fn held(tasks: u64) -> Holdings {
        let envelope = |number| {
            let (output, task) = (Blob::default(), Blob::default());
            Envelope::new(TaskId { node: LOST, number }, output, task)
        };
        Holdings::of((0..tasks).map(envelope).collect())
    }

    #[test]
    fn continued_work_names_the_lost_node() {
        let said = |source, tasks, before: Option<u64>| {
            let last_written = before.map_or(LastWritten::Unknown, LastWritten::MsAgo);
            continued(ME, source, &held(tasks), last_written).unwrap_or_default()
        };
        assert_eq!(
            said(Source::Held(LOST), 12, Some(850)),
            format!("12 tasks of {LOST}, written 0.8 s earlier")
        );
        assert_eq!(said(Source::Held(LOST), 1, None), format!("1 task of {LOST}"));
        let resigned = continued(ME, Source::Held(LOST), &held(1), LastWritten::BeforePanic);
        assert_eq!(resigned, Some(format!("1 task of {LOST}, written before a task panicked there")));
        let to_me = Source::Transit(Transit::grant(LOST, 7, ME));
        assert_eq!(said(to_me, 2, None), format!("2 tasks of {LOST} that were on their way to this node"));
        let to_lost = Source::Transit(Transit::grant(OTHER, 7, LOST));
        assert_eq!(said(to_lost, 3, None), format!("3 tasks that were on their way to {LOST}"));
        let nobodys_loss = [Source::Returned(Transit::grant(ME, 7, OTHER)), Source::Parked(TaskId::ROOT)];
        for source in nobodys_loss {
            assert_eq!(said(source, 1, None), "");
        }
        assert_eq!(said(Source::Held(LOST), 0, Some(850)), "", "it had nothing");
    }
}
