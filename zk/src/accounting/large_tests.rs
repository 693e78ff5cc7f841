use super::*;
use crate::{NAME_BYTES_MAX, quarantine::AboutTask};

#[test]
fn transaction_inlines_parts_up_to_request_limit() {
    // Every name has the maximum length.
    let cluster = ClusterPaths::new(&"c".repeat(NAME_BYTES_MAX)).unwrap();
    let paths = cluster.job("j-0000000000").attempt(u32::MAX);
    let node = "n0123456789abcdef";
    let id = |number: u64| format!("{node}-{}", u64::MAX - number);
    let transit = |number: u64| format!("{node}-g{}~{node}", u64::MAX - number);
    let last = Transaction {
        node: node.to_owned(),
        txn: id(0),
        settled: Some(id(1)),
        // Tasks in scopes have the longest names.
        toggles: (0..1_000).map(|number| format!("{}~{}", id(number), id(number))).collect(),
        take: (0..256).map(transit).collect(),
        ..Transaction::default()
    };
    let about = AboutTask { crashes: u32::MAX, reason: "\u{10000}".repeat(500), at_ms: u64::MAX };
    for round in 0..20 {
        // Between 128 bytes and 64 KiB each, so that in some rounds all of it fits, and in others nothing.
        let bytes_max = 128 << (round % 10);
        let some = |number: u64| vec![0; usize::try_from(number).unwrap() * 7919 % (bytes_max + 1)];
        let last = Transaction {
            output: some(round),
            held: some(round + 1),
            park: (0..256).map(|number| (id(number), some(number))).collect(),
            give: (0..128).map(|number| (transit(number), some(number))).collect(),
            set_aside: (0..8)
                .map(|number| SetAside { task: id(number), envelope: some(number), about: about.clone() })
                .collect(),
            leave: round % 2 == 1,
            ..last.clone()
        };
        let parts = parts(&paths, &last);
        let inline = inlined(&cluster, &paths, &last, &parts);
        let contents = parts.iter().zip(&inline).map(|(part, inline)| part.content(*inline));
        let large = assemble(&last, contents.collect());
        let toggles = last.toggles.iter().map(|id| create(paths.task(id), b"")).collect();
        let ops = operations(&cluster, &paths, &last, last.settled.as_deref(), toggles, &large);
        let bytes: usize = ops.iter().map(|op| op_bytes(op) + CHROOT_BYTES_MAX).sum();
        assert!(bytes <= REQUEST_BYTES_MAX, "{bytes} bytes");
        let chunked = parts.iter().zip(&inline).filter(|(_, inline)| !**inline);
        let smallest = chunked.map(|(part, _)| part.content(true).len() - part.content(false).len()).min();
        assert!(smallest.is_none_or(|more| bytes + more > REQUEST_BYTES_MAX), "{bytes} bytes: room is left");
    }
}
