//! Text and tokens: the tokenizer and the chat template of a folder.

use super::config::Config;
use super::error::Error;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, Value, context};
use std::path::{Path, PathBuf};
use tokenizers::Tokenizer;

/// A tokenizer with what the folder says of chats.
pub struct Text {
    tokenizer: Tokenizer,
    config_file: PathBuf,
    settings: serde_json::Value,
    template: Option<String>,
}

impl Text {
    /// Reads `tokenizer.json`, and `tokenizer_config.json` where it is there.
    ///
    /// # Errors
    /// What is missing or malformed, and a tokenizer that has tokens which the model has not.
    pub fn open(folder: &Path, config: &Config) -> Result<Self, Error> {
        let file = folder.join("tokenizer.json");
        // Parsed by code that is compiled in the library; `from_file` is generic and would be compiled here.
        let read = std::fs::read_to_string(&file).map_err(Into::into).and_then(|text| text.parse::<Tokenizer>());
        let tokenizer = read.map_err(|why| Error::in_file(&file, "", "a tokenizer", why.to_string()))?;
        let largest = tokenizer.get_vocab(true).into_iter().max_by_key(|(_, id)| *id);
        if let Some((token, id)) = largest.filter(|(_, id)| *id as usize >= config.vocabulary) {
            let expected = format!("tokens below the model's vocabulary of {}", config.vocabulary);
            return Err(Error::in_file(&file, "", expected, format!("`{token}` as {id}")));
        }
        let config_file = folder.join("tokenizer_config.json");
        let settings = if config_file.exists() { read_json(&config_file)? } else { serde_json::Value::Null };
        let beside = std::fs::read_to_string(folder.join("chat_template.jinja")).ok();
        let inside = settings.get("chat_template").and_then(|template| template.as_str()).map(Into::into);
        Ok(Text { tokenizer, config_file, settings, template: beside.or(inside) })
    }

    /// The tokens of a text, with those that the tokenizer adds by itself.
    ///
    /// # Errors
    /// What the tokenizer said.
    pub fn encode(&self, text: &str, with_special: bool) -> Result<Vec<u32>, Error> {
        let encoding = self.tokenizer.encode(text, with_special);
        let encoding = encoding.map_err(|why| Error::input("the prompt", "text for the tokenizer", why.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of tokens, special ones left out.
    ///
    /// # Errors
    /// What the tokenizer said.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, Error> {
        let decoded = self.tokenizer.decode(tokens, true);
        decoded.map_err(|why| Error::input("the tokens", "tokens of the tokenizer", why.to_string()))
    }

    /// A user's message as the template has it, up to where the model is to answer.
    ///
    /// # Errors
    /// When there is no template, or it does not render.
    pub fn chat(&self, message: &str) -> Result<String, Error> {
        let wrong = |found: String| Err(Error::in_file(&self.config_file, "`chat_template`", "a chat template", found));
        let Some(template) = &self.template else { return wrong("none".into()) };
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|why| Error::input("chat templates", "their syntax", why.to_string()))?);
        environment.add_function("raise_exception", |why: String| -> Result<Value, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, why))
        });
        let special = |key: &str| match self.settings.get(key) {
            Some(serde_json::Value::String(token)) => token.clone(),
            Some(token) => token.get("content").and_then(|text| text.as_str()).unwrap_or_default().to_owned(),
            None => String::new(),
        };
        let context = context! {
            messages => vec![context! { role => "user", content => message }],
            add_generation_prompt => true,
            bos_token => special("bos_token"),
            eos_token => special("eos_token"),
        };
        match environment.render_str(template, context) {
            Ok(text) => Ok(text),
            Err(why) => wrong(format!("one that does not render: {why}")),
        }
    }
}

fn read_json(file: &Path) -> Result<serde_json::Value, Error> {
    let text = std::fs::read_to_string(file).map_err(|why| Error::in_file(file, "", "JSON", why.to_string()))?;
    serde_json::from_str(&text).map_err(|why| Error::in_file(file, "", "JSON", why.to_string()))
}
