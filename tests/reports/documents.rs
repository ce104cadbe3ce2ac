//! What the documents show: plots that can be drawn, YAML that its readers take, and the action's files.

use crate::support::kernelgate;
use serde_json::Value;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The fenced blocks of a language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let opening = format!("```{language}\n");
    text.split(&opening).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[test]
fn every_plot_that_is_shown_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let text = read("docs/reports.md") + &read("README.md") + &read("docs/results/README.md");
    // From committed results: `summary.json` is somebody's own.
    let commands = text.split('\n').flat_map(|line| line.split('`')).map(str::trim);
    let commands: Vec<&str> =
        commands.filter(|line| line.starts_with("kernelgate plot ") && line.contains("docs/results/")).collect();
    let kinds: std::collections::BTreeSet<&str> = commands.iter().map(|line| line.split(' ').nth(2).unwrap()).collect();
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["amdahl", "errors", "roofline", "scaling", "speedups", "times"]);
    for command in commands {
        let words: Vec<&str> = command.split(" --out ").next().unwrap().split(' ').skip(2).collect();
        let out = folder.path().join("plot.svg");
        let ran = kernelgate("plot").args(words).arg("--out").arg(&out).current_dir(root()).output().unwrap();
        assert!(ran.status.success(), "{command}: {}", String::from_utf8_lossy(&ran.stderr));
        roxmltree::Document::parse(&std::fs::read_to_string(&out).unwrap()).unwrap();
        // A picture beside the text is the one that the command draws.
        if let Some(path) = command.split(" --out ").nth(1).filter(|path| path.starts_with("docs/")) {
            assert!(read(path) == std::fs::read_to_string(&out).unwrap(), "{path} is not what `{command}` draws");
        }
    }
}

#[test]
fn every_block_of_yaml_is_read() {
    let mut found = 0;
    for name in ["docs/reports.md", "docs/guide/ci.md", "README.md"] {
        for block in blocks(&read(name), "yaml") {
            found += documents(&block).len();
        }
    }
    assert!(found > 5, "{found} documents");
    for name in [".github/workflows/gate.yml", "action.yml"] {
        assert_eq!(documents(&read(name)).len(), 1, "{name}");
    }
}

#[test]
fn jobs_of_kubernetes_have_the_fields_that_the_text_relies_on() {
    let text = read("docs/reports.md");
    let all: Vec<Value> = blocks(&text, "yaml").iter().flat_map(|block| documents(block)).collect();
    let named = |kind: &str, name: &str| {
        let found = all.iter().find(|doc| doc["kind"] == kind && doc["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} {name}"))
    };
    let (gate, merge) = (named("Job", "gate"), named("Job", "gate-merge"));
    let claim = named("PersistentVolumeClaim", "runs");
    assert_eq!(claim["spec"]["accessModes"][0], "ReadWriteMany");
    for job in [gate, merge] {
        assert_eq!(job["apiVersion"], "batch/v1");
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(pod["restartPolicy"], "Never");
        assert_eq!(pod["volumes"][0]["persistentVolumeClaim"]["claimName"], claim["metadata"]["name"]);
        assert_eq!(pod["containers"][0]["volumeMounts"][0]["name"], pod["volumes"][0]["name"]);
    }
    let spec = &gate["spec"];
    assert_eq!(spec["completionMode"], "Indexed");
    assert!(spec["completions"] == spec["parallelism"] && spec["backoffLimitPerIndex"].as_u64().unwrap() > 0);
    assert!(spec["podFailurePolicy"].is_null(), "a red gate is no failed pod");
    let shards = spec["completions"].as_u64().unwrap();
    let script = |job: &Value| job["spec"]["template"]["spec"]["containers"][0]["args"][0].as_str().unwrap().to_owned();
    let deal = script(gate);
    assert!(deal.contains(&format!("NR % {shards} == i")) && deal.contains("0 | 1 | 101) mv "), "{deal}");
    let merging = script(merge);
    assert!(merging.contains("shard-{0,1,2,3}.json") && merging.ends_with("exit \"$status\"\n"), "{merging}");
    assert!(text.matches("kubectl wait --for=condition=complete --timeout=").count() == 2);
}

/// Runs the script of a shard as the pod does, with a gate that ends so.
#[cfg(unix)]
#[test]
fn a_red_shard_is_no_failed_pod_and_a_broken_one_is() {
    use std::os::unix::fs::PermissionsExt as _;
    let all: Vec<Value> = blocks(&read("docs/reports.md"), "yaml").iter().flat_map(|block| documents(block)).collect();
    let gate = all.iter().find(|doc| doc["metadata"]["name"] == "gate").unwrap();
    let script = gate["spec"]["template"]["spec"]["containers"][0]["args"][0].as_str().unwrap();
    for (ends, pod, kept) in [(0, 0, true), (1, 0, true), (101, 0, true), (3, 3, false), (137, 137, false)] {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        std::fs::create_dir(&runs).unwrap();
        let fake = folder.path().join("gate");
        let body = format!(
            "#!/bin/bash\nif [ \"$1\" = --list ]; then echo 'a::b::f32::perf: test'; exit; fi\n\
             echo {{}} > \"${{@: -1}}\"; exit {ends}\n"
        );
        std::fs::write(&fake, body).unwrap();
        std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        let mut shell = std::process::Command::new("bash");
        shell.arg("-c").arg(script.replace("/runs/", &format!("{}/", runs.display())));
        let status = shell.env("PATH", path).env("JOB_COMPLETION_INDEX", "1").status().unwrap();
        assert_eq!(
            (status.code(), runs.join("shard-1.json").exists()),
            (Some(pod), kept),
            "a gate that ends with {ends}"
        );
    }
}

#[test]
fn the_action_names_files_that_are_there() {
    let action = &documents(&read("action.yml"))[0];
    assert_eq!(action["runs"]["using"], "composite");
    let scripts: Vec<&str> =
        action["runs"]["steps"].as_array().unwrap().iter().filter_map(|step| step["run"].as_str()).collect();
    let script = scripts.join("\n");
    assert!(script.contains("cargo install --locked --path \"$GITHUB_ACTION_PATH\""), "{script}");
    // `$GITHUB_ACTION_PATH` is the folder of action.yml.
    for word in script.split_whitespace().filter(|word| word.contains("GITHUB_ACTION_PATH")) {
        let path = word.trim_matches('"').replace("$GITHUB_ACTION_PATH", ".");
        assert!(root().join(&path).exists(), "{word}");
    }
    assert!(root().join("Cargo.toml").exists() && root().join("Cargo.lock").exists(), "what --path and --locked read");
    for output in action["outputs"].as_object().unwrap().values() {
        assert!(output["value"].as_str().unwrap().starts_with("${{ inputs.out }}/"), "{output}");
    }
    for input in action["inputs"].as_object().unwrap().keys() {
        assert!(read("action.yml").contains(&format!("inputs.{input} ")), "{input} is not used");
    }
    let workflow = &documents(&read(".github/workflows/gate.yml"))[0];
    for job in ["browser", "slurm"] {
        let steps = workflow["jobs"][job]["steps"].as_array().unwrap_or_else(|| panic!("no job {job}"));
        let scripts = steps.iter().filter_map(|step| step["run"].as_str()).flat_map(str::split_whitespace);
        let files: Vec<&str> = scripts.filter(|word| word.starts_with("ci/")).collect();
        assert!(!files.is_empty() && files.iter().all(|file| root().join(file).exists()), "{job}: {files:?}");
    }
}
