//! Programs whose tasks do not tolerate being moved or split.

use serde::{Deserialize, Serialize};
use taskwork::{Context, Job, Outcome, Task, check};

/// The mistake of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Wrong {
    Nothing,
    /// It returns `Complete` although it must stop.
    Complete,
    /// A part stays in a local variable.
    Forgets,
    /// The part that is split off is not removed.
    Overlap,
    /// The part that is split off is lost.
    Loses,
    /// A field of the task is not serialised.
    Skips,
    /// It returns `Migrate` without having been asked to.
    Deserts,
    /// A table of the shared data is not serialised.
    SkipsShared,
}

/// Counts the leaves of a binary tree.
#[derive(Serialize, Deserialize)]
struct Leaves {
    open: Vec<u32>,
    wrong: Wrong,
    #[serde(skip)]
    skipped: u64,
}

#[derive(Serialize, Deserialize)]
struct Weights {
    #[serde(skip)]
    of_leaves: Vec<u64>,
}

impl Task for Leaves {
    type Shared = Weights;
    type Output = u64;

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        let mut held = None;
        loop {
            if cx.migrate() {
                return if self.wrong == Wrong::Complete { Outcome::Complete } else { Outcome::Migrate };
            }
            let Some(height) = held.take().or_else(|| self.open.pop()) else { break };
            if self.wrong == Wrong::Forgets {
                held = self.open.pop();
            }
            let weight =
                if self.wrong == Wrong::SkipsShared { cx.shared().of_leaves.len() as u64 } else { 1 };
            match height {
                0 if self.wrong == Wrong::Skips => self.skipped += 1,
                0 => *cx.output() += weight,
                _ => self.open.extend([height - 1, height - 1]),
            }
            if self.wrong == Wrong::Deserts {
                return Outcome::Migrate;
            }
            cx.potential_split(self);
        }
        *cx.output() += self.skipped;
        Outcome::Complete
    }

    fn split(&mut self, _: &Weights) -> Option<Self> {
        if self.open.len() < 2 {
            return None;
        }
        let away = match self.wrong {
            Wrong::Overlap => self.open[0],
            _ => self.open.remove(0),
        };
        let open = if self.wrong == Wrong::Loses { vec![] } else { vec![away] };
        Some(Self { open, wrong: self.wrong, skipped: 0 })
    }
}

fn checked(wrong: Wrong) -> Result<(), String> {
    let job = || Job::new(Leaves { open: vec![5], wrong, skipped: 0 }, Weights { of_leaves: vec![0] });
    check(job).map_err(|error| error.to_string())
}

#[test]
fn correct_program_passes_the_check() {
    assert_eq!(checked(Wrong::Nothing), Ok(()));
}

#[test]
fn mistakes_of_tasks_are_found_by_the_check() {
    let interrupted = "tasks are interrupted at poll";
    let split = "tasks are split at every potential_split()";
    for (wrong, part) in [
        (Wrong::Complete, interrupted),
        (Wrong::Forgets, interrupted),
        (Wrong::Overlap, split),
        (Wrong::Loses, split),
        (Wrong::Skips, interrupted),
        (Wrong::Deserts, "returned Migrate although nothing asked it to"),
        (
            Wrong::SkipsShared,
            "If the shared data and all tasks are sent to another node, it is 0; undisturbed, it is 32",
        ),
    ] {
        let message = checked(wrong).unwrap_err();
        assert!(message.contains(part), "{wrong:?}: no {part:?} in {message:?}");
    }
}

#[test]
fn run_on_one_machine_uses_the_decoded_shared_data() {
    let job = || {
        Job::new(
            Leaves { open: vec![5], wrong: Wrong::SkipsShared, skipped: 0 },
            Weights { of_leaves: vec![0] },
        )
    };
    for nodes in [1, 2] {
        assert_eq!(job().nodes(nodes).workers(1).run().unwrap().output, 0, "as on a cluster");
    }
}
