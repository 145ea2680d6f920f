-- The same in SQL: the latest record of each key, which is a text.
CREATE STREAMING TABLE products;

CREATE FLOW latest_products AS AUTO CDC INTO products
FROM STREAM product_changes
KEYS (sku)
APPLY AS DELETE WHEN is_deleted
SEQUENCE BY offset
COLUMNS * EXCEPT (offset, is_deleted)
STORED AS SCD TYPE 1;

-- Computed anew whenever customers have changed.
CREATE MATERIALIZED VIEW customers_per_city AS
SELECT city, count(*) AS customers FROM customers GROUP BY city;
