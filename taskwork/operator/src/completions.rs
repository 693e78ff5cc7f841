//! `taskwork completions`: the completion script for a shell; in bash, also the ids of jobs and the names of nodes and hosts.

use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;
use taskwork_cli::command::{completions, print};

/// Completes ids and names after the generated function. The options make the shell wait for at most some seconds.
const NAMES: &str = r#"
_taskwork_names() {
    _taskwork "$@"
    local current="${COMP_WORDS[COMP_CWORD]}" command="" key="" list="" word
    [[ "$current" == -* ]] && return
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        [[ "$word" != -* ]] && command="$word" && break
    done
    case "$command" in
        JOBS) list=jobs key=job ;;
        NODES) list=nodes key='\(node\|host\)' ;;
        *) return ;;
    esac
    COMPREPLY+=($(compgen -W "$(taskwork "$list" --json --zk-connect-timeout 2 --zk-give-up 2 2> /dev/null |
        grep -o "\"$key\":\"[A-Za-z0-9._-]*\"" | cut -d '"' -f 4 | sort -u)" -- "$current"))
}
complete -F _taskwork_names -o bashdefault -o default taskwork
"#;

/// The arguments of `completions`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

impl Arguments {
    /// Prints the script.
    pub(super) fn run(&self, command: Command) -> ExitCode {
        print(&script(command, self.shell));
        ExitCode::SUCCESS
    }
}

/// Returns the script. Which commands take jobs or nodes follows from the names of their arguments.
pub(super) fn script(mut command: Command, shell: Shell) -> String {
    let takes = |name: &str| {
        let is_it = |sub: &&Command| {
            let mut words =
                sub.get_positionals().flat_map(|argument| argument.get_value_names().into_iter().flatten());
            words.any(|word| word.as_str() == name)
        };
        let names: Vec<_> = command.get_subcommands().filter(is_it).map(Command::get_name).collect();
        names.join("|")
    };
    let names = NAMES.replace("JOBS", &takes("ID")).replace("NODES", &takes("NODE"));
    let script = completions(&mut command, shell);
    if shell == Shell::Bash { script + &names } else { script }
}

#[cfg(test)]
mod tests {
    use std::process::Command as Process;

    use clap::CommandFactory as _;

    use super::*;
    use crate::command::CommandLine;

    /// Returns the words that bash offers for a command line with an unfinished last word.
    fn offered(words: &[&str]) -> Vec<String> {
        let line = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
        // A cluster with two jobs and two nodes.
        let taskwork = r#"taskwork() {
            if [[ "$1" == jobs ]]; then echo '[{"job":"j-0000000001"},{"job":"j-0000000012"}]'; fi
            if [[ "$1" == nodes ]]; then echo '[{"node":"n12","host":"gpu-17"},{"node":"n3","host":"gpu-17"}]'; fi
        }"#;
        let script = format!(
            "{}\n{taskwork}\nCOMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n\
             _taskwork_names taskwork \"${{COMP_WORDS[COMP_CWORD]}}\" x\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script(CommandLine::command(), Shell::Bash)
        );
        let output = Process::new("bash").args(["-c", &script]).output().expect("bash is needed");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn bash_completes_ids_of_jobs_and_names_of_nodes() {
        let has = |words: &[&str], word: &str| offered(words).iter().any(|offered| offered == word);
        assert!(has(&["taskwork", "job", ""], "j-0000000001"));
        assert!(has(&["taskwork", "wait", "j-0000000001", "j-00"], "j-0000000012"));
        assert!(!has(&["taskwork", "job", "j-000000001"], "j-0000000001"));
        assert!(has(&["taskwork", "drain", "n"], "n12") && has(&["taskwork", "drain", "gp"], "gpu-17"));
        assert!(!has(&["taskwork", "drain", ""], "j-0000000001"));
        assert!(has(&["taskwork", "job", "--ti"], "--timeline"), "options are still offered");
        assert!(!has(&["taskwork", "status", ""], "n12"));
    }
}
