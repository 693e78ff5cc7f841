//! Default names of jobs and of their submitters.

use std::{ffi::OsStr, fs, os::unix::fs::MetadataExt as _, path::Path};

use clap::{ArgMatches, Command};

/// The maximum number of characters of a default name.
const NAME_CHARS_MAX: usize = 80;

/// Returns the default name of a job: the program and its positional arguments, of paths only the file names. Options
/// are not part of it, because they may contain secrets.
pub(crate) fn job_name(program: &str, arguments: &Command, given: &ArgMatches) -> String {
    let values = arguments.get_positionals().filter_map(|argument| {
        let values = given.try_get_raw(argument.get_id().as_str()).ok()??;
        Some(values.map(file_name).collect::<Vec<_>>())
    });
    let name = [program.to_owned()].into_iter().chain(values.flatten()).collect::<Vec<_>>().join(" ");
    limited(&name, NAME_CHARS_MAX)
}

fn file_name(value: &OsStr) -> String {
    Path::new(value).file_name().unwrap_or(value).to_string_lossy().into_owned()
}

fn limited(name: &str, chars_max: usize) -> String {
    name.chars().filter(|c| !c.is_control()).take(chars_max).collect()
}

/// Returns the name of the user of this process, for display only. Without the variables USER and LOGNAME, as in
/// containers and services, it comes from the account database.
pub fn submitter() -> String {
    let variable = |name| std::env::var(name).ok().filter(|user| !user.is_empty());
    let name = variable("USER").or_else(|| variable("LOGNAME")).or_else(|| {
        // The owner of this folder is the effective user of the process.
        let uid = fs::metadata("/proc/self").ok()?.uid();
        // Static programs have no other services for accounts than this file.
        let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
        Some(account(&accounts, uid).map_or_else(|| format!("user {uid}"), str::to_owned))
    });
    let name = limited(&name.unwrap_or_default(), 64);
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// Returns the name of an account.
fn account(accounts: &str, uid: u32) -> Option<&str> {
    let uid = uid.to_string();
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1) == Some(uid.as_str())).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::Args;

    use super::*;

    #[derive(Debug, Args)]
    struct Arguments {
        file: PathBuf,
        sizes: Vec<u32>,
        #[arg(long)]
        password: Option<String>,
    }

    fn name_of(line: &[&str]) -> String {
        let arguments = Arguments::augment_args(Command::new("tsp"));
        let given = arguments.clone().get_matches_from([&["tsp"], line].concat());
        job_name("tsp", &arguments, &given)
    }

    #[test]
    fn default_name_states_program_and_instance() {
        assert_eq!(name_of(&["../data/berlin52.tsp"]), "tsp berlin52.tsp");
        assert_eq!(name_of(&["-", "3", "--password", "secret", "4"]), "tsp - 3 4");
        assert_eq!(name_of(&["/"]), "tsp /");
        assert_eq!(name_of(&[&format!("a\n{}", "b".repeat(300))]).len(), NAME_CHARS_MAX);
    }

    #[test]
    fn account_is_found_by_uid() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\n# 7\n:x:7:7::/:\nada:x:1000:7:Ada:/home/ada:/bin/sh";
        assert_eq!(
            [0, 1000, 7, 100].map(|uid| account(accounts, uid)),
            [Some("root"), Some("ada"), None, None]
        );
    }
}
