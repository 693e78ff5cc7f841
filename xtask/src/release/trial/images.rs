//! Runs an image from its folder, as a container: in a root that has nothing but the image, as its user, with its
//! program as the first process.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};
use flate2::read::GzDecoder;
use serde_json::Value;
use tempfile::TempDir;
use zk_server::{Servers, Setup};

use super::{LOOK_EVERY, SOON, finish, read, said, start};
use crate::{release::image::digest, workspace};

/// An instance, and the length of its shortest tour.
const INSTANCE: (&str, u64) = ("tsp-example/instances/europe.csv", 18707);

/// The host name of ZooKeeper for the node: it tests the name resolution of static programs.
const HOST: &str = "zookeeper.test";

/// An image that was unpacked.
struct Unpacked {
    root: TempDir,
    entry: Vec<String>,
    arguments: Vec<String>,
    user: String,
    group: String,
}

/// Solves an instance by the image of `tsp`, on its own and on a node that reaches ZooKeeper by a name.
///
/// # Errors
/// If the image is broken, its program fails, finds something else, or does not leave at a SIGTERM.
pub(super) fn solve(folder: &Path, logs: &Path) -> Result<()> {
    let image = Unpacked::read(folder)?;
    image.prepare()?;
    let solved = said(&mut image.command(&["solve", "/instance", "--json"], &[]), logs).context("solve")?;
    ensure_shortest(&solved)?;

    let servers = Servers::start(&Setup::standalone())?;
    let hosts = servers.hosts();
    let (_, port) = hosts.rsplit_once(':').context("the port of ZooKeeper")?;
    let zookeeper = [("TASKWORK_ZK", format!("{HOST}:{port}"))];
    let arguments: Vec<_> = image.arguments.iter().map(String::as_str).collect();
    let mut command = image.command(&arguments, &zookeeper);
    let log = logs.join("node");
    let node = Node(Some(start(&mut command, &logs.join("node-out"), &log)?));
    let submit = ["submit", "/instance", "--wait", "--json"];
    let outcome =
        said(&mut image.command(&submit, &zookeeper), logs).and_then(|solved| ensure_shortest(&solved));
    outcome.with_context(|| format!("a node in the image, whose log is:\n{}", read(&log)))?;
    let status = node.leave(&command)?;
    ensure!(status == Some(0), "the node has left with {status:?}:\n{}", read(&log));
    Ok(())
}

/// Runs the image of another program to print its version, which has no further requirements.
///
/// # Errors
/// If the image is broken, or its program does not print its version.
pub(super) fn ask_version(folder: &Path, version: &str, logs: &Path) -> Result<()> {
    let image = Unpacked::read(folder)?;
    image.prepare()?;
    let told = said(&mut image.command(&["--version"], &[]), logs)?;
    ensure!(told.contains(version), "its program is not of version {version}:\n{told}");
    Ok(())
}

fn ensure_shortest(text: &str) -> Result<()> {
    let (file, shortest) = INSTANCE;
    let found = serde_json::from_str::<Value>(text).ok().and_then(|report| report["length"].as_u64());
    ensure!(
        found == Some(shortest),
        "the shortest tour of {file} has the length {shortest}, but this was found:\n{text}"
    );
    Ok(())
}

impl Unpacked {
    fn read(folder: &Path) -> Result<Self> {
        let index = json(&fs::read(folder.join("index.json")).context("index.json")?)?;
        let manifest = json(&follow(folder, &index["manifests"][0])?)?;
        let config = json(&follow(folder, &manifest["config"])?)?;
        let root = tempfile::tempdir().context("a folder to unpack it")?;
        for layer in manifest["layers"].as_array().context("layers")? {
            let packed = follow(folder, layer)?;
            tar::Archive::new(GzDecoder::new(&packed[..])).unpack(root.path()).context("a layer")?;
        }
        let words = |name: &str| {
            let words = config["config"][name].as_array().into_iter().flatten();
            words.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
        };
        let user =
            config["config"]["User"].as_str().and_then(|user| user.split_once(':')).context("no user")?;
        let (user, group) = (user.0.to_owned(), user.1.to_owned());
        Ok(Self { root, entry: words("Entrypoint"), arguments: words("Cmd"), user, group })
    }

    /// Creates the environment of a container: mount points, and host names.
    fn prepare(&self) -> Result<()> {
        let root = self.root.path();
        for folder in ["dev", "etc", "proc"] {
            fs::create_dir(root.join(folder)).with_context(|| format!("a place for /{folder}"))?;
        }
        fs::write(root.join("etc/hosts"), format!("127.0.0.1 localhost {HOST}\n")).context("/etc/hosts")?;
        let instance = workspace::root().join(INSTANCE.0);
        fs::copy(&instance, root.join("instance")).with_context(|| instance.display().to_string())?;
        Ok(())
    }

    /// Returns a command that runs the image with these arguments and variables.
    fn command(&self, arguments: &[&str], variables: &[(&str, String)]) -> Command {
        let mut command = Command::new("bwrap");
        command.args(["--unshare-user", "--uid", &self.user, "--gid", &self.group]);
        // The program is the first process of its own, as in a container, and the network is that of this machine.
        command.args(["--unshare-pid", "--as-pid-1", "--unshare-ipc", "--unshare-uts", "--die-with-parent"]);
        command.arg("--ro-bind").arg(self.root.path()).arg("/");
        command.args(["--proc", "/proc", "--dev", "/dev", "--clearenv"]);
        for (name, value) in variables {
            command.args(["--setenv", name, value]);
        }
        command.arg("--").args(&self.entry).args(arguments);
        command
    }
}

/// Returns a content of the image, after its digest was checked.
fn follow(folder: &Path, descriptor: &Value) -> Result<Vec<u8>> {
    let name = descriptor["digest"].as_str().context("a descriptor has no digest")?;
    let path: PathBuf = folder.join("blobs").join(name.replace(':', "/"));
    let bytes = fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    ensure!(digest(&bytes) == name, "{} has another content than its name says", path.display());
    ensure!(
        descriptor["size"] == bytes.len(),
        "{} has another length than in its descriptor",
        path.display()
    );
    Ok(bytes)
}

fn json(bytes: &[u8]) -> Result<Value> {
    serde_json::from_slice(bytes).context("a description of the image is no JSON")
}

/// A node in a container. It is killed when this is dropped.
struct Node(Option<Child>);

impl Node {
    /// Sends SIGTERM to the node, and returns the exit code with which it has left.
    fn leave(mut self, command: &Command) -> Result<Option<i32>> {
        let container = self.0.as_ref().context("it has left already")?.id();
        let node = child(container)?.to_string();
        let status = Command::new("kill").args(["-TERM", &node]).status().context("cannot start kill")?;
        ensure!(status.success(), "the node cannot be asked to leave");
        let container = self.0.take().context("it has left already")?;
        Ok(finish(container, command)?.code())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(container) = &mut self.0 {
            // It may have exited; an error cannot be reported here.
            let _ = container.kill();
            let _ = container.wait();
        }
    }
}

/// Returns the process that a process has started.
fn child(of: u32) -> Result<u32> {
    let path = format!("/proc/{of}/task/{of}/children");
    let deadline = Instant::now() + SOON;
    loop {
        let text = fs::read_to_string(&path).with_context(|| format!("{path} cannot be read"))?;
        match text.split_whitespace().next() {
            Some(child) => return child.parse().with_context(|| format!("{path}: {text}")),
            None if Instant::now() > deadline => bail!("no process in the container"),
            None => thread::sleep(LOOK_EVERY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::{files::Files, image::Image, origin::Origin};

    fn image() -> (TempDir, Files) {
        let mut layer = Files::default();
        layer.add_program("tsp", "#!/bin/sh\n").unwrap();
        let origin = Origin { commit: "1f1e8d6aa0b1".to_owned(), epoch: 0 };
        let image =
            Image { program: "tsp", arguments: &["node"], version: "1" }.make(&layer, &origin).unwrap();
        let folder = tempfile::tempdir().unwrap();
        image.write(folder.path()).unwrap();
        (folder, image)
    }

    #[test]
    fn image_can_be_unpacked() {
        let (folder, _) = image();
        let image = Unpacked::read(folder.path()).unwrap();
        assert_eq!(
            (&image.entry[..], &image.arguments[..]),
            (&["/tsp".to_owned()][..], &["node".to_owned()][..])
        );
        assert_eq!((image.user.as_str(), image.group.as_str()), ("65532", "65532"));
        assert_eq!(fs::read_to_string(image.root.path().join("tsp")).unwrap(), "#!/bin/sh\n");
        let line = format!("{:?}", image.command(&["node"], &[("TASKWORK_ZK", "zk:1".to_owned())]));
        assert!(line.contains("\"--uid\" \"65532\"") && line.ends_with("\"--\" \"/tsp\" \"node\""), "{line}");
    }

    #[test]
    fn modified_image_is_refused() {
        let (folder, image) = image();
        for (name, file) in image.iter().filter(|(name, _)| name.starts_with("blobs/")) {
            let path = folder.path().join(name);
            fs::write(&path, [&file.bytes[..], b" "].concat()).unwrap();
            let error = format!("{:#}", Unpacked::read(folder.path()).err().expect("it was changed"));
            assert!(error.contains("another content"), "{error}");
            fs::write(&path, &file.bytes).unwrap();
        }
        fs::remove_file(folder.path().join("index.json")).unwrap();
        assert!(Unpacked::read(folder.path()).is_err());
    }

    #[test]
    fn wrong_tour_is_a_failure() {
        ensure_shortest("{\"length\": 18707}").unwrap();
        for text in ["", "{}", "{\"length\": 18708}", "[]", "18707"] {
            assert!(ensure_shortest(text).is_err(), "{text}");
        }
    }
}
