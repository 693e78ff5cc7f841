//! Job files of commands on node processes: the outputs are those of one machine, although nodes are lost.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use taskwork_tests::cluster::{Cluster, SOON};

use crate::workflows::{COORDINATES, FOLLOWS, GONE, RESTARTS, cluster, wait_for};

/// Three stages over 20 samples. The commands of the second one wait for the file `GATE`.
const JOB: &str = r#"
[each]
sample = "samples/*.txt"
[task.sort]
in = ["samples/{sample}.txt"]
out = ["sorted/{sample}.txt"]
run = "sort -n {in} > {out}"
[task.number]
in = ["sorted/{sample}.txt"]
out = ["numbered/{sample}.txt", "length/{sample}"]
run = """
echo {sample} >> 'BEGUN'
while [ ! -e 'GATE' ]; do sleep 0.05; done
sed = {in} > numbered/{sample}.txt
wc -l < {in} > length/{sample}
"""
with = { timeout = "10 min" }
[task.merge]
in = ["numbered/{sample}.txt", "length/{sample}"]
out = ["all.txt"]
run = "cat {in} > {out}"
"#;

const SAMPLES: usize = 20;

/// Creates a folder with the job and its samples. Returns the path of the job file.
fn job(folder: &Path) -> String {
    fs::create_dir_all(folder.join("samples")).unwrap();
    for sample in 0..SAMPLES {
        let numbers = (0..50).map(|number| format!("{}\n", number * (sample + 7) % 53));
        fs::write(folder.join(format!("samples/s{sample:02}.txt")), numbers.collect::<String>()).unwrap();
    }
    let at = |name: &str| folder.with_file_name(name).to_str().unwrap().to_owned();
    let text = JOB.replace("GATE", &at("gate")).replace("BEGUN", &at("begun"));
    fs::write(folder.join("job.toml"), text).unwrap();
    folder.join("job.toml").to_str().unwrap().to_owned()
}

/// Submits the job, applies a fault while commands run, and compares the outputs.
fn run(shared: &[&str], happens: impl Fn(&mut Cluster, usize, &[usize])) {
    let mut cluster = cluster("flow");
    let [expected, folder] = ["expected", "job"].map(|name| cluster.folder().join(name));
    let gate = cluster.folder().join("gate");
    fs::write(&gate, "").unwrap();
    cluster.json("flow", &["solve", "--quiet", &job(&expected)]).unwrap();
    fs::remove_file(&gate).unwrap();
    let begun = cluster.folder().join("begun");
    fs::remove_file(&begun).unwrap();
    let file = job(&folder);
    let submit = [&["submit", &*file, "--wait", "--json"], shared].concat();
    let running = cluster.begin("flow", &submit).unwrap();
    let coordinator = wait_for(&cluster, &[0, 1, 2], 1, COORDINATES)[0];
    let others = wait_for(&cluster, &[0, 1, 2], 2, FOLLOWS);
    let deadline = Instant::now() + SOON;
    // Each node waits with one command.
    while fs::read_to_string(&begun).unwrap_or_default().lines().count() < 3 {
        assert!(Instant::now() < deadline, "the nodes do not wait at the gate\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(20));
    }
    happens(&mut cluster, coordinator, &others);
    fs::write(&gate, "").unwrap();
    let said = running.end().unwrap();
    assert_eq!(said.code, 0, "{}\n{}", said.err, cluster.logs());
    let result: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(result["ran"], 2 * SAMPLES + 1);
    let samples = (0..SAMPLES).flat_map(|sample| {
        ["sorted/s#.txt", "numbered/s#.txt", "length/s#"]
            .map(|name| name.replace('#', &format!("{sample:02}")))
    });
    for name in samples.chain(["all.txt".to_owned()]) {
        let [expected, found] = [&expected, &folder].map(|folder| fs::read_to_string(folder.join(&name)));
        assert_eq!(found.unwrap(), expected.unwrap(), "{name}");
    }
    assert_eq!(cluster.json("flow", &["solve", "--quiet", &file]).unwrap()["ran"], 0, "all is recorded");
}

#[test]
fn outputs_return_although_a_node_is_killed() {
    run(&[], |cluster, coordinator, others| {
        cluster.kill_nodes(&others[..1]).unwrap();
        cluster.wait_for_log(coordinator, GONE).unwrap();
    });
}

#[test]
fn outputs_return_although_the_node_of_the_program_is_killed() {
    run(&[], |cluster, coordinator, others| {
        cluster.kill_nodes(&[coordinator]).unwrap();
        let new = wait_for(cluster, others, 1, COORDINATES)[0];
        cluster.wait_for_log(new, RESTARTS).unwrap();
    });
}

#[test]
fn nodes_write_into_a_shared_folder_although_one_is_killed() {
    run(&["--shared"], |cluster, coordinator, others| {
        // Before the result of the job: each waiting command reads an output that was written into the folder.
        let written = fs::read_dir(cluster.folder().join("job/sorted")).unwrap().count();
        assert!(written >= 3, "{written} outputs are in the shared folder");
        cluster.kill_nodes(&others[..1]).unwrap();
        cluster.wait_for_log(coordinator, GONE).unwrap();
    });
}
