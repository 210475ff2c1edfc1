"""The server that one writes first: FastAPI around sentence-transformers. `python bench/plain_server.py MODEL PORT`."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer

app = FastAPI()


class Body(BaseModel):
    model: str
    input: list[str]


@app.post("/embed")
def embed(body: Body) -> dict[str, Any]:
    vectors = app.state.model.encode(body.input, normalize_embeddings=True)
    return {"data": [{"index": n, "embedding": vector.tolist()} for n, vector in enumerate(vectors)]}


if __name__ == "__main__":
    app.state.model = SentenceTransformer(sys.argv[1], device="cpu")
    uvicorn.run(app, port=int(sys.argv[2]), log_level="warning")
