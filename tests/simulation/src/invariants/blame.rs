//! Blame: a task that is set aside for a panic is one that panics. Other tasks on the node, including tasks
//! on trial, are not set aside for it.

use taskwork::simulation::{self, Stored};
use zk::{Op, quarantine::AboutTask};

use super::{Facts, Invariant, Seen, durable::blob, place};
use crate::{
    workload::{DEADLY, Shape, Walk},
    world::Servers,
};

#[derive(Default)]
pub(super) struct OnlyTheGuilty;

impl Invariant for OnlyTheGuilty {
    fn name(&self) -> &'static str {
        "blame"
    }

    fn see(&mut self, facts: &Facts, _: u64, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Wrote { ops, servers, .. } = seen else { return Ok(()) };
        for op in *ops {
            let Op::Create { path, data, .. } = op else { continue };
            let Some(at) = place(&facts.cluster, path) else { continue };
            let ["quarantine", task, "about"] = at.rest[..] else { continue };
            let Some(shape) = facts.job(at.job).map(|job| &job.shape) else { continue };
            let Shape::Deadly { state, .. } = *shape else { continue };
            let about: AboutTask =
                serde_json::from_slice(data).map_err(|error| format!("{path} cannot be read: {error}"))?;
            let envelope = path.trim_end_matches("/about");
            if about.reason.contains(DEADLY) && !contains(envelope, shape, state, servers) {
                return Err(format!("{task} is set aside for a panic of another task"));
            }
        }
        Ok(())
    }
}

/// Returns whether a state is still unvisited in the task of this znode.
fn contains(path: &str, shape: &Shape, deadly: u64, servers: &Servers) -> bool {
    let task = servers.read(path).and_then(|data| blob(&data, servers));
    let Some(Stored { tasks, .. }) = task.and_then(|task| simulation::parked::<Walk>(&task)) else {
        return false;
    };
    let mut open: Vec<_> = tasks.iter().flat_map(|(walk, _)| walk.open().to_vec()).collect();
    while let Some(state) = open.pop() {
        if state.number == deadly {
            return true;
        }
        open.extend(shape.children(&state));
    }
    false
}
