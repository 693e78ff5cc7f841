//! The state in the tree of each attempt: the tasks, decoded, and the committed outputs.

use std::collections::{BTreeMap, HashMap};

use dataflow_framework::Main;
use taskwork::simulation::{self, Stored};
use zk::{ClusterPaths, Op};

use super::place;
use crate::{
    workload::{Done, Shape, State, Walk, workflow::Flow},
    world::Servers,
};

/// The sizes of all subtrees of a job's tree, by the numbers of their roots.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    by_root: HashMap<u64, Done>,
    /// Whether the job is a workflow, which has no tree.
    is_workflow: bool,
}

impl Sizes {
    /// Returns the sizes, or none if the tree depends on the incumbent.
    pub(crate) fn of(shape: &Shape) -> Self {
        let is_workflow = matches!(shape, Shape::Workflow(_));
        let mut sizes = Self { is_workflow, ..Self::default() };
        if !is_workflow && !matches!(shape, Shape::Tour(_)) {
            sizes.extend(shape, shape.root());
        }
        sizes
    }

    /// Adds the sizes of the subtrees of the tree with this root.
    pub(super) fn extend(&mut self, shape: &Shape, root: State) {
        let (mut open, mut states) = (vec![(root, None)], Vec::new());
        while let Some((state, parent)) = open.pop() {
            let place = states.len();
            states.push((state.number, parent, Done { states: 1, sum: state.number }));
            open.extend(shape.children(&state).into_iter().map(|child| (child, Some(place))));
        }
        for place in (0..states.len()).rev() {
            let (number, parent, size) = states[place];
            self.by_root.insert(number, size);
            if let Some(parent) = parent {
                let above: &mut (u64, Option<usize>, Done) = &mut states[parent];
                taskwork::Output::merge(&mut above.2, size);
            }
        }
    }

    fn is_known(&self) -> bool {
        !self.by_root.is_empty()
    }
}

/// The content of one znode.
#[derive(Debug, Clone, Copy, Default)]
struct Content {
    tasks: usize,
    states: Done,
    unprotected: bool,
    /// The maximum number of nodes in a row that were lost with any of the tasks.
    crashes: u32,
    /// Whether its tasks were set aside.
    is_set_aside: bool,
}

/// The state in the tree of the attempts at one job.
#[derive(Debug, Default)]
pub(crate) struct Durable {
    attempts: BTreeMap<u32, BTreeMap<String, Content>>,
}

impl Durable {
    /// Records an operation on the job.
    ///
    /// # Errors
    /// If it writes unreadable data.
    pub(super) fn note(
        &mut self,
        cluster: &ClusterPaths,
        sizes: &Sizes,
        op: &Op,
        servers: &Servers,
    ) -> Result<(), String> {
        let Some(at) = place(cluster, op.path()) else { return Ok(()) };
        let (Some(attempt), [folder @ ("parked" | "held" | "transit" | "quarantine" | "outputs"), _]) =
            (at.attempt, &at.rest[..])
        else {
            return Ok(());
        };
        let znodes = self.attempts.entry(attempt).or_default();
        match op {
            Op::Delete { path, .. } => {
                znodes.remove(path);
            }
            // A znode of a stranger does not belong to a node.
            Op::Create { data, .. } if data.first() == Some(&0xff) => {}
            Op::Create { path, data, .. } | Op::Set { path, data, .. } => {
                let content = read(sizes, folder, data, servers)
                    .ok_or_else(|| format!("{path} cannot be read back"))?;
                let content = Content { is_set_aside: *folder == "quarantine", ..content };
                znodes.insert(path.clone(), content);
            }
            Op::Check { .. } => {}
        }
        Ok(())
    }

    /// Returns the number of tasks in the tree for an attempt, excluding tasks that were set aside; `None` if
    /// a node holds more than it has written.
    pub(crate) fn tasks(&self, attempt: u32) -> Option<usize> {
        let znodes = self.attempts.get(&attempt)?;
        let all_written = znodes.values().all(|content| !content.unprotected);
        let all = || znodes.values().map(|content| content.tasks).sum::<usize>();
        all_written.then(|| all() - self.set_aside(attempt).0)
    }

    /// Returns the number of tasks of an attempt that were set aside, and their states.
    pub(crate) fn set_aside(&self, attempt: u32) -> (usize, Done) {
        let mut all = (0, Done::default());
        let znodes = self.attempts.get(&attempt).into_iter().flatten();
        for (_, content) in znodes.filter(|(_, content)| content.is_set_aside) {
            all.0 += content.tasks;
            taskwork::Output::merge(&mut all.1, content.states);
        }
        all
    }

    /// Returns all states in the tree for an attempt, in tasks and in outputs; `None` as above.
    pub(crate) fn states(&self, attempt: u32) -> Option<Done> {
        self.tasks(attempt)?;
        let mut all = Done::default();
        for content in self.attempts.get(&attempt)?.values() {
            taskwork::Output::merge(&mut all, content.states);
        }
        Some(all)
    }

    /// Returns the maximum number of crashes of the tasks in a znode.
    pub(crate) fn crashes(&self, attempt: u32, path: &str) -> u32 {
        let znode = self.attempts.get(&attempt).and_then(|znodes| znodes.get(path));
        znode.map_or(0, |content| content.crashes)
    }

    /// Returns whether a node that is not a member holds more than it has written.
    pub(crate) fn is_unprotected(&self, attempt: u32, node: &str) -> bool {
        let held = format!("/held/{node}");
        let znodes = self.attempts.get(&attempt).into_iter().flatten();
        znodes.into_iter().any(|(path, content)| content.unprotected && path.ends_with(&held))
    }
}

fn read(sizes: &Sizes, folder: &str, data: &[u8], servers: &Servers) -> Option<Content> {
    let data = blob(data, servers)?;
    if sizes.is_workflow {
        return read_workflow(folder, &data);
    }
    let Stored { tasks, unprotected, crashes } = match folder {
        "outputs" => {
            let states = if data.is_empty() { Done::default() } else { simulation::decode(&data)? };
            return Some(Content { states, ..Content::default() });
        }
        "parked" | "quarantine" => simulation::parked::<Walk>(&data)?,
        _ => simulation::held::<Walk>(&data)?,
    };
    let mut states = Done::default();
    for (task, output) in &tasks {
        taskwork::Output::merge(&mut states, *output);
        if sizes.is_known() {
            for state in task.open() {
                taskwork::Output::merge(&mut states, *sizes.by_root.get(&state.number)?);
            }
        }
    }
    Some(Content { tasks: tasks.len(), states, unprotected, crashes, ..Content::default() })
}

/// Reads the znode of a workflow: its program is a task, whose output has no states.
fn read_workflow(folder: &str, data: &[u8]) -> Option<Content> {
    let Stored { tasks, unprotected, crashes } = match folder {
        "outputs" => return Some(Content::default()),
        "parked" | "quarantine" => simulation::parked::<Main<Flow>>(data)?,
        _ => simulation::held::<Main<Flow>>(data)?,
    };
    Some(Content { tasks: tasks.len(), unprotected, crashes, ..Content::default() })
}

/// Returns the data of a znode, or of the chunks that it names.
pub(super) fn blob(content: &[u8], servers: &Servers) -> Option<Vec<u8>> {
    match content.split_first() {
        None => Some(Vec::new()),
        Some((0, data)) => Some(data.to_vec()),
        Some((1, pointer)) => {
            let pointer: serde_json::Value = serde_json::from_slice(pointer).ok()?;
            let (folder, chunks) = (pointer["folder"].as_str()?, pointer["chunks"].as_u64()?);
            let mut data = Vec::new();
            for chunk in 0..chunks {
                data.extend(servers.read(&format!("{folder}/{chunk:06}"))?);
            }
            Some(data)
        }
        Some(_) => None,
    }
}
