//! A node stands for election once: of two candidates the later would wait for the earlier, which nobody stands for, and with it
//! everybody else.

use zk::Op;

use super::{Facts, Invariant, Seen};

pub(super) struct EachStandsOnce;

impl Invariant for EachStandsOnce {
    fn name(&self) -> &'static str {
        "candidates"
    }

    fn see(&mut self, facts: &Facts, _: u64, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Wrote { ops, servers, .. } = seen else { return Ok(()) };
        let folder = facts.cluster.election();
        for op in *ops {
            let Op::Create { path, .. } = op else { continue };
            let Some(name) = path.strip_prefix(&folder).and_then(|name| name.strip_prefix('/')) else {
                continue;
            };
            // Its number is given by the servers; what comes before names the node.
            let count = servers.names(&folder).iter().filter(|other| other.starts_with(name)).count();
            if name.ends_with('~') && count > 1 {
                return Err(format!("{name} stands for election {count} times"));
            }
        }
        Ok(())
    }
}
