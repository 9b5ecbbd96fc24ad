import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count, desc, explode, split

import fencepost

METADATA, LOG = "zk://127.0.0.1:2181/ledgers", "lines"

spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 2).getOrCreate()
options = {"metadata": METADATA, "log": LOG, "decoder": "utf8"}
lines = spark.readStream.format("fencepost").options(**options).load()
words = lines.select(explode(split("value", " ")).alias("word")).groupBy("word").agg(count("*").alias("times"))
counted = {}


def show(batch: DataFrame, number: int) -> None:
    counted.update({row.word: row.times for row in batch.orderBy(desc("times"), "word").collect()})
    print(f"batch {number}: {sum(counted.values())} words", flush=True)


query = words.writeStream.outputMode("complete").foreachBatch(show).start()
print("counting", flush=True)
with fencepost.connect(METADATA) as store:
    while query.isActive and not store.log(LOG).chain().sealed:
        time.sleep(0.5)
query.processAllAvailable()
query.stop()
print("\nthe log is sealed:")
for word, times in sorted(counted.items(), key=lambda each: (-each[1], each[0])):
    print(f"{times:7} {word}")
