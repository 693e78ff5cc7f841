//! Images of containers, each with one program and its licences, as folders in the layout of the Open Container
//! Initiative (OCI image-spec 1.1): three descriptions in JSON and one layer. Without the licences they are what
//! `deploy/Containerfile` builds.
//!
//! Not built with a tool, so that the same program gives the same image, down to its digest.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{files::Files, origin::Origin, tarball};

/// The user and the group that the program runs as: by number, since the image has no list of users.
const USER: &str = "65532:65532";

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// The content of an image.
#[derive(Debug)]
pub(crate) struct Image<'a> {
    pub(crate) program: &'a str,
    /// The default arguments of the program.
    pub(crate) arguments: &'a [&'a str],
    pub(crate) version: &'a str,
}

impl Image<'_> {
    /// Makes the image of the files of its layer, among which is the program, and returns the files of its folder.
    ///
    /// # Errors
    /// None in practice: it is made in memory.
    pub(crate) fn make(&self, layer: &Files, origin: &Origin) -> Result<Files> {
        let tar = tarball::tar(layer, "", origin.epoch)?;
        let mut folder = Files::default();
        let layer = blob(&mut folder, LAYER, tarball::gzip(&tar)?)?;
        let config = blob(&mut folder, CONFIG, text(&self.config(&tar, origin))?)?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config,
            "layers": [layer],
            "annotations": self.annotations(origin),
        });
        let mut manifest = blob(&mut folder, MANIFEST, text(&manifest)?)?;
        manifest["annotations"] = json!({"org.opencontainers.image.ref.name": self.version});
        manifest["platform"] = json!({"architecture": "amd64", "os": "linux"});
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [manifest],
        });
        folder.add("index.json", text(&index)?)?;
        folder.add("oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}")?;
        Ok(folder)
    }

    fn config(&self, tar: &[u8], origin: &Origin) -> Value {
        json!({
            "created": origin.timestamp(),
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "User": USER,
                "Entrypoint": [format!("/{}", self.program)],
                "Cmd": self.arguments,
                "WorkingDir": "/",
                "Labels": self.annotations(origin),
            },
            "rootfs": {"type": "layers", "diff_ids": [digest(tar)]},
            "history": [{"created": origin.timestamp(), "created_by": "cargo xtask release"}],
        })
    }

    fn annotations(&self, origin: &Origin) -> Value {
        json!({
            "org.opencontainers.image.title": self.program,
            "org.opencontainers.image.version": self.version,
            "org.opencontainers.image.revision": origin.commit,
            "org.opencontainers.image.created": origin.timestamp(),
            "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        })
    }
}

/// Adds content to the folder under its digest, and returns its descriptor.
fn blob(folder: &mut Files, kind: &str, bytes: Vec<u8>) -> Result<Value> {
    let digest = digest(&bytes);
    let descriptor = json!({"mediaType": kind, "digest": digest, "size": bytes.len()});
    folder.add(&format!("blobs/{}", digest.replace(':', "/")), bytes)?;
    Ok(descriptor)
}

fn text(value: &Value) -> Result<Vec<u8>> {
    serde_json::to_vec(value).context("a description of an image")
}

/// Returns the digest of a content, as images name it.
pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hash(bytes))
}

/// Returns the SHA-256 of bytes, in hexadecimal digits.
pub(crate) fn hash(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold(String::new(), |mut digits, byte| {
        let _infallible = write!(digits, "{byte:02x}");
        digits
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Read as _};

    use super::*;
    use crate::workspace;

    const IMAGE: Image<'_> = Image { program: "tsp", arguments: &["node"], version: "1.2.3" };

    fn origin() -> Origin {
        Origin { commit: "1f1e8d6aa0b1".to_owned(), epoch: 1_795_539_600 }
    }

    fn layer(names: &[&str]) -> Files {
        let mut files = Files::default();
        for name in names {
            files.add_program(name, name.repeat(99)).unwrap();
        }
        files
    }

    /// Returns a description in an image, after its digest and size were checked.
    fn follow(folder: &Files, descriptor: &Value) -> Vec<u8> {
        let name = descriptor["digest"].as_str().unwrap();
        let bytes = &folder.get(&format!("blobs/{}", name.replace(':', "/"))).unwrap().bytes;
        assert_eq!(digest(bytes), name);
        assert_eq!(descriptor["size"], bytes.len());
        bytes.clone()
    }

    fn json(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn image_is_independent_of_file_order() {
        let one = IMAGE.make(&layer(&["tsp", "licenses/MIT"]), &origin()).unwrap();
        assert_eq!(one, IMAGE.make(&layer(&["licenses/MIT", "tsp"]), &origin()).unwrap());
        assert_ne!(one, IMAGE.make(&layer(&["tsp"]), &origin()).unwrap());
    }

    #[test]
    fn program_is_reachable_from_index() {
        let folder = IMAGE.make(&layer(&["tsp"]), &origin()).unwrap();
        let index = json(&folder.get("index.json").unwrap().bytes);
        assert_eq!(index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"], "1.2.3");
        let manifest = json(&follow(&folder, &index["manifests"][0]));
        let config = json(&follow(&folder, &manifest["config"]));
        assert_eq!(config["config"]["Entrypoint"], json!(["/tsp"]));
        assert_eq!(config["created"], "2026-11-24T17:00:00Z");
        let packed = follow(&folder, &manifest["layers"][0]);
        let mut tar = Vec::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut tar).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&tar));
        let mut archive = tar::Archive::new(&tar[..]);
        let names: Vec<_> =
            archive.entries().unwrap().map(|it| it.unwrap().path().unwrap().into_owned()).collect();
        assert_eq!(names, [std::path::Path::new("tsp")]);
        // The layout, index, manifest, description and layer: nothing that nothing refers to.
        assert_eq!(folder.iter().count(), 5);
    }

    #[test]
    fn image_matches_containerfile() {
        let path = workspace::root().join("deploy/Containerfile");
        let file = fs::read_to_string(path).unwrap();
        let lines: Vec<_> = file.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
        let user = format!("USER {USER}");
        assert_eq!(
            lines,
            ["FROM scratch", "COPY --chmod=755 tsp /tsp", &user, "ENTRYPOINT [\"/tsp\"]", "CMD [\"node\"]"]
        );
    }

    #[test]
    fn digest_equals_that_of_other_tools() {
        assert_eq!(digest(b""), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
