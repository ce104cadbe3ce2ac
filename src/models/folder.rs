//! A Hugging Face folder: `config.json`, weights in one safetensors file or in shards with an index.

use super::config::Config;
use super::error::Error;
use super::tensor_files::TensorFiles;
use super::weights::{Bytes, Weights};
use crate::core::dtype::DType;
use std::path::{Path, PathBuf};

/// A folder with its files mapped.
pub struct Folder {
    /// The folder.
    pub path: PathBuf,
    /// Its configuration.
    pub config: Config,
    tensors: TensorFiles,
}

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

impl Folder {
    /// Opens a folder; only headers are read.
    ///
    /// # Errors
    /// What is missing or malformed, with the file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let config = Config::read(&path.join("config.json"))?;
        let tensors = TensorFiles::open(path, shards(path)?.into_iter().map(|name| path.join(name)))?;
        Ok(Folder { path: path.into(), config, tensors })
    }
}

/// The files that hold the weights.
fn shards(path: &Path) -> Result<Vec<String>, Error> {
    let index = path.join(INDEX);
    if path.join(SINGLE).exists() || !index.exists() {
        return Ok(vec![SINGLE.into()]);
    }
    let malformed = |found: String| Error::in_file(&index, "`weight_map`", "a file for each tensor", found);
    let text = std::fs::read_to_string(&index).map_err(|why| malformed(why.to_string()))?;
    let parsed: serde_json::Value = serde_json::from_str(&text).map_err(|why| malformed(why.to_string()))?;
    let map = parsed.get("weight_map").and_then(|map| map.as_object()).ok_or_else(|| malformed("none".into()))?;
    let mut files: Vec<String> = map.values().filter_map(|file| file.as_str().map(Into::into)).collect();
    files.sort();
    files.dedup();
    Ok(files)
}

impl Weights for Folder {
    fn tensor(&self, name: &str, dims: &[usize], dtype: DType) -> Result<Bytes, Error> {
        self.tensors.tensor(name, dims, dtype)
    }
}
