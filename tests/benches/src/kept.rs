//! Output of the results of a measurement with a picture.

use std::{
    error::Error,
    fmt::Display,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// The format and the folder of the results.
#[derive(Debug, clap::Args)]
pub struct Kept {
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// The folder for the results as JSON and as a picture (SVG), which have the name of the measurement.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

impl Kept {
    /// Prints the results, and writes them to files of this name if the user wants that.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn keep(
        &self,
        name: &str,
        tables: impl Display,
        json: &Value,
        draw: impl FnOnce(&Path) -> Result<(), Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let json = serde_json::to_string_pretty(json)?;
        if self.json {
            println!("{json}");
        } else {
            println!("{tables}");
        }
        let Some(folder) = &self.out else { return Ok(()) };
        fs::create_dir_all(folder)?;
        fs::write(folder.join(name).with_extension("json"), json + "\n")?;
        draw(&folder.join(name).with_extension("svg"))
    }
}
