//! What the timeline says about work of lost nodes that this node continues.

use zk::{AttemptPaths, Store as _};

use super::Coordination;
use crate::{
    holdings::{Holdings, Source, Transit},
    id::NodeId,
    shell::clock::unix_ms,
};

impl Coordination {
    /// Returns for how long everything that a lost node held has stood there, in milliseconds, as far as the
    /// clocks agree: it worked for at most that long, and for at most the interval of its writes. `None` for other sources, and if nobody can tell: a claim does not depend on it.
    pub(super) async fn written_before(&self, attempt: &AttemptPaths, source: Source) -> Option<u64> {
        let Source::Held(node) = source else { return None };
        let stat = self.store.exists(&attempt.held_by(&node.to_string())).await.ok()??;
        (stat.modified_ms > 0).then(|| unix_ms().saturating_sub(stat.modified_ms))
    }
}

/// Describes what was claimed, if it is the work of a lost node. `lost_ms` is the time for which the node may
/// have worked since it last wrote: that work is done again.
pub(super) fn continued(
    me: NodeId,
    source: Source,
    holdings: &Holdings,
    lost_ms: Option<u64>,
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
            let again = lost_ms
                .map(|ms| format!("; up to {}.{} s of its work is done again", ms / 1_000, ms % 1_000 / 100))
                .unwrap_or_default();
            Some(format!("{count} of {node}{again}"))
        }
        // What a thief has refused, and what a node has parked when it left, is nobody's loss.
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
            Envelope { id: TaskId { node: LOST, number }, children: Vec::new(), deaths: 0, output, task }
        };
        Holdings::of((0..tasks).map(envelope).collect())
    }

    #[test]
    fn it_is_said_what_is_continued_of_which_lost_node() {
        let said = |source, tasks, before| continued(ME, source, &held(tasks), before).unwrap_or_default();
        assert_eq!(
            said(Source::Held(LOST), 12, Some(850)),
            format!("12 tasks of {LOST}; up to 0.8 s of its work is done again")
        );
        assert_eq!(said(Source::Held(LOST), 1, None), format!("1 task of {LOST}"));
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
