//! Any content of a cluster's znodes can be displayed.

use taskwork::view::{Content, Event, Recorder, Snapshot, View, replay};

/// Paths of znodes that a view reads, below that of the cluster.
const PATHS: &[&str] = &[
    "members/n0000000000000001",
    "members/n0000000000000002",
    "drain/n0000000000000001",
    "election/j-0000000001~n0000000000000001~0000000000",
    "jobs/j-0000000001",
    "jobs/j-0000000002",
    "jobs/j-0000000001/figures/n0000000000000001",
    "jobs/j-0000000001/figures/n0000000000000002",
    "jobs/j-0000000001/attempts/1/list",
    "jobs/j-0000000001/attempts/1/list/open",
    "jobs/j-0000000001/attempts/1/parked",
    "jobs/j-0000000001/attempts/1/outputs/n0000000000000001",
    "jobs/j-0000000001/attempts/1/left/n0000000000000001",
    "jobs/j-0000000001/attempts/1/quarantine/n0000000000000001-0/about",
];

/// Displays a cluster with these contents and names of znodes: each line of the input is a znode, or a tick if it is
/// empty. Its record is replayed, and the input is also read as a record.
///
/// # Panics
/// If a change does not lead from one snapshot to the next, or a snapshot or a record changes when it is written
/// and read again.
pub fn view(bytes: &[u8]) {
    let (mut view, mut recorder) = (View::default(), Recorder::new(Vec::new(), u64::MAX));
    let mut followed = view.snapshot();
    for (at_ms, line) in (0..).zip(bytes.split(|&byte| byte == b'\n')) {
        let event = event(at_ms, line);
        view.apply(&event);
        recorder.note(&event).expect("there is memory");
        if event.content == Content::Tick {
            followed.apply(view.delta_since(followed.seq).expect("the last tick is remembered"));
            assert_eq!(followed, view.snapshot());
        }
    }
    let written = serde_json::to_string(&followed).expect("a snapshot has a form");
    assert!(serde_json::from_str::<Snapshot>(&written).is_ok(), "a snapshot can be read: {written}");
    let record = recorder.finish().expect("there is memory");
    assert_eq!(replay(&record[..]).map(|view| view.snapshot()).ok(), Some(followed));
    let _ = replay(bytes);
}

/// Decodes an event; the first byte of a line selects the znode and the kind of content.
fn event(at_ms: u64, line: &[u8]) -> Event {
    let Some((&first, content)) = line.split_first() else { return Event::tick(at_ms * 1_000) };
    let path = PATHS.get(usize::from(first % 32)).map(|&path| path.to_owned());
    let path = path.unwrap_or_else(|| String::from_utf8_lossy(content).into_owned());
    let content = match first / 32 {
        0 => Content::Gone,
        1 => Content::Children(u32::try_from(content.len()).unwrap_or(u32::MAX)),
        2 => Content::Lost,
        3 => Content::Found,
        _ => Content::Data(content.to_vec()),
    };
    Event::of(at_ms, path, content)
}
