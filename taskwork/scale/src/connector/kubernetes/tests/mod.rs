//! Tests of the Kubernetes connector without objects: its settings, its requests, its ledger.

mod ledger;
mod requests;
mod settings;

use std::path::Path;

use super::*;

fn key(text: &str) -> Key {
    text.parse().expect("a key")
}

fn common(folder: &Path) -> Common {
    let offer = serde_json::json!({"name": "pods", "workers": 2, "max": 50});
    Common {
        cluster: "demo".to_owned(),
        folder: folder.to_owned(),
        offers: vec![serde_json::from_value(offer).expect("an offer")],
        currency: None,
    }
}

/// Opens a connector with these settings.
fn open(folder: &Path, settings: serde_json::Value) -> Result<Kubernetes, String> {
    Kubernetes::new(common(folder), serde_json::from_value(settings).map_err(|error| error.to_string())?)
}
