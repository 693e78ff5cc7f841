//! The znodes that a view reads, and the part of each that it needs.

/// A znode of a cluster with information for a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    Member { node: &'a str },
    Candidate { job: &'a str, node: &'a str, number: u64 },
    Drain { node: &'a str },
    Cordon { node: &'a str },
    Job { job: &'a str },
    Figures { job: &'a str, node: &'a str },
    OfAttempt { job: &'a str, attempt: u32, part: Part<'a> },
}

/// A znode of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// The global task list.
    List,
    /// The placeholder entry that keeps the list from being empty.
    Open,
    Parked,
    /// A node that has enrolled.
    Output {
        node: &'a str,
    },
    /// A node that has left cleanly.
    Left {
        node: &'a str,
    },
    /// The record of a task that was set aside.
    SetAside {
        task: &'a str,
    },
}

/// The part of a znode that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Data,
    /// The number of its children.
    Children,
    /// Nothing: the name carries all information.
    Name,
}

/// The longest name accepted in a path, in bytes: longer than any name that a node or a client creates.
const NAME_BYTES_MAX: usize = 200;

impl<'a> Place<'a> {
    /// Returns the place of a path below that of the cluster; `None` if no view reads it.
    pub(crate) fn of(path: &'a str) -> Option<Self> {
        let mut parts = path.splitn(7, '/');
        let mut next = || parts.next();
        let place = match (next()?, next()?, next(), next(), next(), next()) {
            ("members", node, None, ..) => Self::Member { node },
            ("drain", node, None, ..) => Self::Drain { node },
            ("cordon", node, None, ..) => Self::Cordon { node },
            ("election", name, None, ..) => candidate(name)?,
            ("jobs", job, None, ..) => Self::Job { job },
            ("jobs", job, Some("figures"), Some(node), None, ..) => Self::Figures { job, node },
            ("jobs", job, Some("attempts"), Some(attempt), Some(part), name) => {
                let part = match (part, name) {
                    ("list", None) => Part::List,
                    ("list", Some("open")) => Part::Open,
                    ("parked", None) => Part::Parked,
                    ("outputs", Some(node)) => Part::Output { node },
                    ("left", Some(node)) => Part::Left { node },
                    ("quarantine", Some(task)) => Part::SetAside { task },
                    _ => return None,
                };
                Self::OfAttempt { job, attempt: attempt.parse().ok()?, part }
            }
            _ => return None,
        };
        let is_about = matches!(place, Self::OfAttempt { part: Part::SetAside { .. }, .. });
        // Only a task that was set aside has a znode below it: `about`.
        let is_whole = if is_about { next() == Some("about") } else { next().is_none() };
        (is_whole && place.names().all(is_name)).then_some(place)
    }

    pub(crate) fn wanted(self) -> Wanted {
        match self {
            Self::Member { .. } | Self::Job { .. } | Self::Figures { .. } => Wanted::Data,
            Self::Candidate { .. } | Self::Drain { .. } | Self::Cordon { .. } => Wanted::Name,
            Self::OfAttempt { part, .. } => match part {
                Part::List | Part::Parked => Wanted::Children,
                Part::Open | Part::Output { .. } | Part::Left { .. } => Wanted::Name,
                Part::SetAside { .. } => Wanted::Data,
            },
        }
    }

    fn names(self) -> impl Iterator<Item = &'a str> {
        let (first, second) = match self {
            Self::Member { node } | Self::Drain { node } | Self::Cordon { node } => (node, None),
            Self::Candidate { job, node, .. } | Self::Figures { job, node } => (job, Some(node)),
            Self::Job { job } => (job, None),
            Self::OfAttempt { job, part, .. } => match part {
                Part::List | Part::Open | Part::Parked => (job, None),
                Part::Output { node } | Part::Left { node } => (job, Some(node)),
                Part::SetAside { task } => (job, Some(task)),
            },
        };
        [Some(first), second].into_iter().flatten()
    }
}

/// Returns the folder of a znode, if a view reads the folder's number of children.
pub(crate) fn counted_folder(path: &str) -> Option<&str> {
    let (folder, _) = path.rsplit_once('/')?;
    let place = Place::of(folder)?;
    (place.wanted() == Wanted::Children).then_some(folder)
}

fn candidate(name: &str) -> Option<Place<'_>> {
    let mut parts = name.split('~');
    let (job, node, number) = (parts.next()?, parts.next()?, parts.next()?);
    Some(Place::Candidate { job, node, number: number.parse().ok()? })
}

fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_known_znode_has_its_place() {
        let job = "j-0000000004";
        let of = |part| Some(Place::OfAttempt { job, attempt: 2, part });
        for (path, place) in [
            ("members/n1", Some(Place::Member { node: "n1" })),
            ("drain/n1", Some(Place::Drain { node: "n1" })),
            ("cordon/n1", Some(Place::Cordon { node: "n1" })),
            ("election/j-0000000004~n1~0000000007", Some(Place::Candidate { job, node: "n1", number: 7 })),
            ("jobs/j-0000000004", Some(Place::Job { job })),
            ("jobs/j-0000000004/figures/n1", Some(Place::Figures { job, node: "n1" })),
            ("jobs/j-0000000004/attempts/2/list", of(Part::List)),
            ("jobs/j-0000000004/attempts/2/list/open", of(Part::Open)),
            ("jobs/j-0000000004/attempts/2/parked", of(Part::Parked)),
            ("jobs/j-0000000004/attempts/2/outputs/n1", of(Part::Output { node: "n1" })),
            ("jobs/j-0000000004/attempts/2/left/n1", of(Part::Left { node: "n1" })),
            ("jobs/j-0000000004/attempts/2/quarantine/n1-0/about", of(Part::SetAside { task: "n1-0" })),
        ] {
            assert_eq!(Place::of(path), place, "{path}");
        }
    }

    #[test]
    fn path_of_other_znode_has_no_place() {
        let long = format!("members/{}", "x".repeat(201));
        for path in [
            "",
            "members",
            "members/",
            "members/n1/x",
            "jobs/j/vars/incumbent",
            "jobs/j/attempts/x/list",
            "jobs/j/attempts/2",
            "jobs/j/attempts/2/list/n1-0",
            "jobs/j/attempts/2/quarantine/n1-0",
            "jobs/j/attempts/2/quarantine/n1-0/other",
            "jobs/j/figures",
            "jobs/j/figures/",
            "election/j~n",
            "election/j~n~x",
            &long,
        ] {
            assert_eq!(Place::of(path), None, "{path}");
        }
    }

    #[test]
    fn listed_tasks_are_counted_and_not_read() {
        let list = "jobs/j/attempts/2/list";
        assert_eq!(counted_folder("jobs/j/attempts/2/list/n1-0"), Some(list));
        assert_eq!(counted_folder("jobs/j/attempts/2/list/open"), Some(list));
        assert_eq!(counted_folder("jobs/j/attempts/2/held/n1"), None);
    }
}
